from typing import Any

import numpy as np
import pytest
from conftest import JobMaker
from phased import in_phases

from planner.domain.job import Job
from planner.domain.strategy import Layout, Recompute, Strategy
from planner.memory import activations
from planner.memory.ledger import estimate_memory
from planner.parallel import partition
from planner.parallel.activations import tokens

HIDDEN, HEADS, TOKENS = 768, 12, 1024
STATISTICS = 2 * 8
"""Mean and reciprocal deviation of two layer norms, fp32: the paper calls them negligible."""


def gpt2(
    make_job: JobMaker, layers: int = 2, config: dict[str, Any] | None = None, **recipe: Any
) -> Job:
    sizes = {
        "model_type": "gpt2",
        "n_embd": HIDDEN,
        "n_head": HEADS,
        "n_layer": layers,
        "n_positions": TOKENS,
        "vocab_size": 50_304,
    }
    wanted = {
        "framework": "megatron",
        "attention": "eager",
        "precision": "bf16-mixed",
        "sequence_length": TOKENS,
        "global_batch_size": 64,
        **recipe,
    }
    return make_job(sizes | (config or {}), gpus=64, recipe=wanted)


def forward(job: Job, s: Layout, index: int = 0) -> float:
    """Bytes of the activations at the end of forward."""
    term = activations.activations(job, s, partition.stage(job, s, index))
    return float(term.forward.value)


def of_a_layer(make_job: JobMaker, s: Layout, **recipe: Any) -> float:
    """What one more layer keeps."""
    return forward(gpt2(make_job, 3, **recipe), s) - forward(gpt2(make_job, 2, **recipe), s)


SCORES = 5 * HEADS * TOKENS / HIDDEN


@pytest.mark.parametrize("split", [1, 2, 4])
@pytest.mark.parametrize(
    ("sequence_parallel", "recompute", "shares"),
    [
        (False, "none", (10, 24 + SCORES)),
        (True, "none", (0, 34 + SCORES)),
        (False, "selective", (10, 24)),
        (True, "selective", (0, 34)),
        (False, "full", (2, 0)),
        (True, "full", (0, 2)),
    ],
)
def test_a_layer_keeps_what_korthikanti_et_al_count(
    make_job: JobMaker,
    *,
    split: int,
    sequence_parallel: bool,
    recompute: str,
    shares: tuple[float, float],
) -> None:
    """Table 2 of arXiv:2205.05198: s b h (34 + 5 a s / h) and its shares, GPT with dropout 0.1.

    The paper leaves out the layer norms' statistics, 16 bytes per token here. With full recompute
    it keeps the whole input on every rank (2 s b h); under sequence parallelism that is divided
    too, as Megatron-LM does since.
    """
    s = Layout(
        tensor_parallel_size=split,
        sequence_parallel=sequence_parallel,
        recompute=Recompute(recompute),
        micro_batch_size=3,
    )
    whole, divided = shares
    expected = HIDDEN * (whole + divided / split)
    if recompute != "full":
        expected += STATISTICS / (split if sequence_parallel else 1)
    assert of_a_layer(make_job, s) == pytest.approx(3 * TOKENS * expected, rel=1e-12)


def test_dropout_masks_take_a_byte_per_element(make_job: JobMaker) -> None:
    dropouts = dict.fromkeys(("resid_pdrop", "attn_pdrop", "embd_pdrop"), 0.0)
    without, with_masks = (
        forward(gpt2(make_job, 3, config), Layout()) - forward(gpt2(make_job, 2, config), Layout())
        for config in (dropouts, {})
    )
    # Of two hidden states and of the scores, whose product with theirs is kept as well.
    assert with_masks - without == TOKENS * (2 * HIDDEN + (1 + 2) * HEADS * TOKENS)


@pytest.mark.parametrize(
    ("precision", "shards", "expected"),
    [
        ("bf16-mixed", 1, 18),
        ("bf16-mixed", 8, 6 + 12 / 8),
        ("fp16-mixed", 1, 20),
        ("fp16-mixed", 8, 4 + 16 / 8),
    ],
)
def test_megatron_spends_the_bytes_per_parameter_of_its_documentation(
    make_job: JobMaker, precision: str, shards: int, expected: float
) -> None:
    """The table of Megatron-LM's distributed optimizer page."""
    job = gpt2(make_job, precision=precision)
    s = Layout(data_parallel_shard_size=shards, zero_stage=int(shards > 1))
    terms = {term.name: float(term.amount) for term in estimate_memory(job, s).terms}
    states = terms["parameters"] + terms["gradients"] + terms["optimizer_states"]
    assert states == pytest.approx(expected * job.model.parameters)


def test_operands_of_matmuls_take_a_byte_in_fp8(make_job: JobMaker) -> None:
    # Both inputs of h, attention's output of h and the MLP's inner 4 h: from 2 bytes to 1.
    saved = of_a_layer(make_job, Layout()) - of_a_layer(make_job, Layout(), precision="fp8")
    assert saved == TOKENS * 7 * HIDDEN


def llama(make_job: JobMaker, framework: str, **recipe: Any) -> Job:
    wanted = {"framework": framework, "precision": "bf16-mixed", "sequence_length": 2048}
    return make_job("meta-llama/Llama-3.1-8B", gpus=8, recipe=wanted | recipe)


def block(job: Job, s: Layout) -> float:
    """Bytes per token that one of 32 blocks leaves behind."""
    return forward(job, s) / 32 / float(tokens(job, s))


@pytest.mark.parametrize(("split", "sequence_parallel"), [(1, False), (4, False), (4, True)])
def test_operation_level_recompute_saves_every_second_matmul(
    make_job: JobMaker, *, split: int, sequence_parallel: bool
) -> None:
    """Of q, k, v, o, gate, up, down: q, v, gate and down; attention's output; the block's input."""
    job = llama(make_job, "torchtitan", attention="sdpa")
    layout: dict[str, Any] = {
        "tensor_parallel_size": split,
        "sequence_parallel": sequence_parallel,
    }
    s = Layout(zero_stage=3, data_parallel_shard_size=2, recompute=Recompute.SELECTIVE, **layout)
    full = Layout(zero_stage=3, data_parallel_shard_size=2, recompute=Recompute.FULL, **layout)
    hidden, key_value, inner, heads = 4096, 1024, 14_336, 32
    shared = 2 * (hidden + key_value + inner + hidden) + 4 * heads
    reduced = 2 * 2 * hidden / split if sequence_parallel else 0
    expected = shared / split + 2 * hidden + reduced
    assert block(job, s) - block(job, full) == pytest.approx(expected)


def test_materialised_scores_are_recomputed_by_both_selective_rules(make_job: JobMaker) -> None:
    for framework in ("torchtitan", "megatron"):
        job = llama(make_job, framework, attention="eager")
        saved = block(job, Layout(recompute=Recompute.NONE)) - block(
            job, Layout(recompute=Recompute.SELECTIVE)
        )
        assert saved >= 2 * 32 * 2048


@pytest.mark.parametrize("framework", ["torch", "torchtitan", "megatron", "nanotron"])
@pytest.mark.parametrize("attention", ["eager", "flash"])
@pytest.mark.parametrize(
    "model", ["gpt2", "meta-llama/Llama-3.2-1B", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b"]
)
def test_more_recompute_never_keeps_more(
    make_job: JobMaker, framework: str, attention: str, model: str
) -> None:
    recipe = {"framework": framework, "attention": attention, "precision": "bf16-mixed"}
    job = make_job(model, recipe=recipe | {"sequence_length": 512})
    none, selective, full = (forward(job, Layout(recompute=kind)) for kind in Recompute)
    assert full <= selective <= none


def test_a_recomputed_block_is_what_recompute_did_not_save(make_job: JobMaker) -> None:
    job = llama(make_job, "torchtitan")
    s = {kind.value: Layout(recompute=kind) for kind in Recompute}
    working = {
        kind: float(
            max(in_phases(activations.recomputed_block(job, one, partition.stage(job, one, 0))))
        )
        for kind, one in s.items()
    }
    kept = {kind: forward(job, one) / 32 for kind, one in s.items()}
    assert working["none"] == 0
    assert 0 < working["selective"] < working["full"]
    assert working["selective"] == pytest.approx(kept["none"] - kept["selective"], rel=0.02)


def buffers(job: Job, **layout: Any) -> float:
    s = Layout(**layout)
    at = partition.stage(job, s, 0)
    return max(in_phases(activations.tensor_parallel_buffers(job, s, at)))


def test_gathered_inputs_are_buffered_where_they_are_not_kept(make_job: JobMaker) -> None:
    job = gpt2(make_job)
    assert buffers(job, tensor_parallel_size=2) == 0
    assert buffers(job, sequence_parallel=True) == 0
    both = {"tensor_parallel_size": 2, "sequence_parallel": True}
    assert buffers(job, **both) == 2 * 2 * TOKENS * HIDDEN
    assert buffers(gpt2(make_job, framework="torch"), **both) == 0


def gathered(job: Job, **layout: Any) -> list[float]:
    s = Layout(**layout)
    at = partition.stage(job, s, 0)
    return in_phases(activations.gathered_keys_values(job, s, at))


def test_keys_and_values_of_all_ranks_are_there_for_one_block(make_job: JobMaker) -> None:
    """Measured: the script's attention on 8 ranks allocates 2.5 such tensors, 4.6 in backward."""
    job = gpt2(make_job, framework="torch")
    whole = 2 * TOKENS * HIDDEN
    assert gathered(job, context_parallel_size=1) == [0] * 6
    # In forward they are gone when logits come, which are more; a stage without a head has none.
    at_once = [0, 0, 4 * whole, 4 * whole, 0, 0]
    assert gathered(job, context_parallel_size=4, zero_stage=3) == at_once
    assert gathered(job, context_parallel_size=4, pipeline_parallel_size=2) == [
        2 * whole, 0, 4 * whole, 4 * whole, 0, 0
    ]  # fmt: skip
    both = gathered(job, context_parallel_size=4, zero_stage=3, tensor_parallel_size=2)
    assert max(both) == 2 * whole
    assert max(gathered(gpt2(make_job), context_parallel_size=4)) == 0


def test_nanotron_adds_16_bit_gradients_to_fp32_ones(make_job: JobMaker) -> None:
    job = gpt2(make_job, framework="nanotron")

    def passing(stage: int) -> Any:
        s = Strategy(zero_stage=stage)
        return np.array(
            in_phases(activations.passing_gradients(job, s, partition.stage(job, s, 0)))
        )

    size = 2 * job.model.parameters
    assert list(passing(1)) == [0, 0, 0, size, size, 0]
    assert list(passing(0)) == [size, size, size, 2 * size, 2 * size, size]


def test_silu_and_its_product_are_two_operations_in_nanotron(make_job: JobMaker) -> None:
    fused, spelled_out = (
        block(llama(make_job, name, attention="flash"), Layout())
        for name in ("megatron", "nanotron")
    )
    assert spelled_out - fused == 2 * 14_336


@pytest.mark.parametrize("experts_parallel", [1, 2, 8])
def test_balanced_routing_gives_every_rank_as_many_tokens(
    make_job: JobMaker, experts_parallel: int
) -> None:
    """Under expert parallelism a rank sees other tokens, but no fewer: k of every token's choices."""
    recipe = {"framework": "megatron", "precision": "bf16-mixed", "sequence_length": 512}
    job = make_job("mistralai/Mixtral-8x7B-v0.1", gpus=8, recipe=recipe)
    layout: dict[str, Any] = {"data_parallel_shard_size": 8, "zero_stage": 1}
    alone = forward(job, Layout(**layout))
    assert forward(job, Layout(**layout, expert_parallel_size=experts_parallel)) == alone


@pytest.mark.parametrize("precision", ["bf16-mixed", "fp16-mixed"])
def test_megatron_scales_inside_the_activation_and_keeps_no_output_of_an_expert(
    make_job: JobMaker, precision: str
) -> None:
    """By hand: each expert more that a token meets keeps the token, both halves of its gated layer and
    their product, in 2 bytes each, and not what it returns."""
    config = {
        "model_type": "mixtral",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 1024,
        "num_local_experts": 8,
    }
    recipe = {"framework": "megatron", "precision": precision, "sequence_length": TOKENS}

    def kept(chosen: int) -> float:
        job = make_job(config | {"num_experts_per_tok": chosen}, gpus=8, recipe=recipe)
        return forward(job, Layout(data_parallel_replicate_size=8)) / (2 * TOKENS)

    assert kept(3) - kept(2) == 2 * (256 + 3 * 512)


def test_gradients_on_their_way_are_those_of_what_is_trained(make_job: JobMaker) -> None:
    """nanotron hands on 2 bytes a parameter: of adapters, 5 million of 7.6 billion."""
    recipe = {"framework": "nanotron"}
    full, adapted = (
        make_job("Qwen/Qwen2.5-7B", gpus=8, recipe=recipe | more)
        for more in ({}, {"method": "lora"})
    )
    s = Layout(data_parallel_replicate_size=8)
    passing, trained = (
        max(in_phases(activations.passing_gradients(job, s, partition.stage(job, s, 0))))
        for job in (full, adapted)
    )
    assert passing > 2 * 2 * 7.6e9
    assert trained == 2 * 2 * 5_046_272
