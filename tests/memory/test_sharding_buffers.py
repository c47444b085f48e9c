from typing import Any

import pytest
from conftest import JobMaker
from hypothesis import given, settings
from hypothesis import strategies as st
from phased import in_phases

from planner.catalog import records
from planner.core.units import GIB, MIB
from planner.domain.job import Job
from planner.domain.kept import Numerics
from planner.domain.strategy import Layout, Offload, Recompute
from planner.memory.ledger import Memory, estimate_memory
from planner.memory.phases import PHASES
from planner.memory.sharding_buffers import communication_buffers, communicators
from planner.parallel import partition
from planner.parallel.activations import kept_per_token
from planner.request.schema import parse_request, resolve
from planner.request.sections import StrategyRequest
from planner.request.strategy import requested_layout

GPT2 = 124_439_808
LLAMA_7B = 6_738_415_616


def sharded(stage: int, ranks: int = 8, **fields: Any) -> Layout:
    return Layout(data_parallel_shard_size=ranks, zero_stage=stage, **fields)


def buffers(job: Job, s: Layout) -> dict[str, float]:
    amounts = in_phases(communication_buffers(job, s, partition.stage(job, s, 0)))
    return dict(zip(PHASES, amounts, strict=True))


def ledger(memory: Memory) -> dict[str, float]:
    return {term.name: float(term.amount) for term in memory.terms}


def small_run(make_job: JobMaker, model: Any, gpus: int) -> Job:
    recipe = {
        "framework": "deepspeed",
        "precision": "fp16-mixed",
        "sequence_length": 16,
        "global_batch_size": gpus,
    }
    return make_job(model, gpus=gpus, gpu="v100-32gb", recipe=recipe)


def test_zero_2_states_are_those_of_deepspeeds_estimator(make_job: JobMaker) -> None:
    """DeepSpeed docs, memory.rst: t5-3b (2,851 M) on 8 GPUs of a node, 15.93 GB (GiB) each.

    estimate_zero2_model_states_mem_needs adds 4 B x P (16-bit parameters and gradients) and
    16 B x P / N (fp32 gradients, master copy and two states). It counts the 16-bit gradients
    whole; here ZeRO-2 has them reduced and divided by the time of the step, so 2 B x P of theirs
    is 2 B x P / N.
    """
    job = small_run(make_job, "google-t5/t5-3b", 8)
    held = ledger(estimate_memory(job, sharded(2)))
    parameters = job.model.parameters
    assert held["gradients"] == pytest.approx(2 * parameters / 8)
    ours = held["parameters"] + held["optimizer_states"] + held["optimizer_temporaries"]
    assert (ours + 2 * parameters) / GIB == pytest.approx(15.93, rel=1e-3)


def test_zero_2_with_offload_leaves_the_16_bit_parameters(make_job: JobMaker) -> None:
    """The same page: offload_optimizer leaves 5.31 GB a GPU, 2 B x P."""
    job = small_run(make_job, "google-t5/t5-3b", 8)
    held = ledger(estimate_memory(job, sharded(2, offload=Offload.OPTIMIZER)))
    assert held["parameters"] / GIB == pytest.approx(5.31, rel=1e-3)
    gone = ("gradients", "optimizer_states", "optimizer_temporaries")
    assert [held[name] for name in gone] == [0, 0, 0]


@pytest.mark.parametrize(
    ("model", "gpus", "published_bytes"),
    [("google-t5/t5-3b", 8, 6.09 * GIB), ("google-t5/t5-large", 4, 3291 * MIB)],
)
def test_zero_3_states_are_those_of_deepspeeds_estimator(
    make_job: JobMaker, model: str, gpus: int, published_bytes: float
) -> None:
    """The same page: 6.09 GB for t5-3b on 8 GPUs, 3291 MB for t5-large on 4.

    estimate_zero3_model_states_mem_needs adds 18 B x P / N, of which 4 are the fp32 gradients of
    the step, to 4 B x the largest layer (32 M), gathered with its gradients. Here what is gathered
    is a communication buffer, bounded by stage3_max_live_parameters, and the 16-bit gradient shard
    (2 B x P / N) has a line of its own.
    """
    job = small_run(make_job, model, gpus)
    held = ledger(estimate_memory(job, sharded(3, gpus)))
    for_the_step = job.optimizer.temporary_fraction * 4 * job.model.parameters / gpus
    ours = held["parameters"] + held["optimizer_states"] + for_the_step
    assert ours + 4 * 32e6 == pytest.approx(published_bytes, rel=2e-3)


def test_zero_3_casts_the_gradients_of_a_sub_group_at_a_time(make_job: JobMaker) -> None:
    """DeepSpeed's default sub_group_size: 1e9 of the elements that a rank holds; ZeRO-2 casts all of them."""
    job = small_run(make_job, "google-t5/t5-3b", 2)
    shard = job.model.parameters / 2
    assert shard > 1e9
    cast = {stage: ledger(estimate_memory(job, sharded(stage, 2))) for stage in (2, 3)}
    assert cast[2]["optimizer_temporaries"] == 4 * shard
    assert cast[3]["optimizer_temporaries"] in {0, 4e9}


@pytest.mark.parametrize(
    ("offload", "published"), [("optimizer", 0.78), ("optimizer+parameters", 0.12)]
)
def test_zero_3_with_offload_leaves_what_deepspeeds_estimator_says(
    make_job: JobMaker, offload: str, published: float
) -> None:
    """The same page: 0.78 GB a GPU (2 B x P / N + 4 B x the largest layer of 32 M), or 0.12."""
    job = small_run(make_job, "google-t5/t5-3b", 8)
    held = ledger(estimate_memory(job, sharded(3, offload=Offload(offload))))
    assert (held["parameters"] + 4 * 32e6) / GIB == pytest.approx(published, abs=0.005)


def test_deepspeed_reduces_in_a_bucket_of_its_own_size(make_job: JobMaker) -> None:
    """reduce_bucket_size 5e8 in 16 bit is 1 GB, whatever the model, from ZeRO-2 on.

    gpt2 has 124 M parameters; ZeRO-1 flattens what it has, and DDP on one GPU reduces nothing.
    """
    job = small_run(make_job, "gpt2", 8)
    assert buffers(job, sharded(1)) == dict.fromkeys(PHASES, 0.0) | {PHASES[4]: 2 * GPT2}
    assert set(buffers(job, Layout()).values()) == {0.0}
    in_backward = dict.fromkeys(PHASES[1:5], 1e9)
    assert buffers(job, sharded(2)) == dict.fromkeys(PHASES, 0.0) | in_backward
    three = buffers(job, sharded(3))
    assert three[PHASES[5]] == 1e9
    assert three[PHASES[0]] == 1e9 + 2 * GPT2


def test_deepspeed_zero_3_gathers_no_more_than_its_limit(make_job: JobMaker) -> None:
    """stage3_max_live_parameters 1e9 in 16 bit, unless a single matrix is larger."""
    job = small_run(make_job, "huggyllama/llama-7b", 8)
    assert buffers(job, sharded(3))[PHASES[0]] == 1e9 + 2 * 1e9
    wide = small_run(make_job, llama(20_480, 4, 128, 128, 81_920), 8)
    assert buffers(wide, sharded(3))[PHASES[0]] == 1e9 + 2 * 20_480 * 81_920


def test_torchtitan_gathers_embeddings_and_head_by_themselves(make_job: JobMaker) -> None:
    """llama-7b: 32,000 x 4,096 of embeddings and as many (and a norm) of head.

    A block has 202,383,360 parameters, more than either; 2 B gathered, 4 B reduced.
    """
    table, block = 32_000 * 4_096, 202_383_360
    recipe = {"precision": "bf16-mixed", "global_batch_size": 8, "framework": "torchtitan"}
    job = make_job("huggyllama/llama-7b", gpus=8, recipe=recipe)
    three = buffers(job, sharded(3))
    assert three["end of forward"] == 2 * (table + 4_096 + block)
    assert three["backward of the loss"] == 2 * (table + 4_096)
    around = 2 * (table + 4_096) + 4 * block + 6 * block
    assert three["backward of the last block"] == around
    assert three["reduction of the outer gradients"] == 8 * table
    assert three["optimizer step"] == 0
    assert buffers(job, sharded(2))["backward of the loss"] == 2 * LLAMA_7B
    assert set(buffers(job, sharded(1)).values()) == {0.0}


def test_fully_shard_keeps_what_is_outside_the_blocks_gathered(make_job: JobMaker) -> None:
    """llama-7b in bf16: 2 B x (two tables, the last norm and a block) at the end of forward."""
    outer, block = 2 * 32_000 * 4_096 + 4_096, 202_383_360
    job = make_job("huggyllama/llama-7b", gpus=8, recipe={"precision": "bf16-mixed"})
    three = buffers(job, sharded(3))
    assert three["end of forward"] == three["backward of the loss"] == 2 * (outer + block)
    assert three["reduction of the outer gradients"] == 6 * outer
    assert set(buffers(job, sharded(1)).values()) == {0.0}


def test_a_tied_head_holds_two_gradients_of_the_table(make_job: JobMaker) -> None:
    """Llama-3.2-1B: (2 + 2 + 4) B x table and norm, and 4 B x a block not yet scattered."""
    outer, block = 128_256 * 2_048 + 2_048, 60_821_504
    job = make_job("meta-llama/Llama-3.2-1B", gpus=8, recipe={"precision": "bf16-mixed"})
    held = buffers(job, sharded(3))["reduction of the outer gradients"]
    assert held == 8 * outer + 4 * block


@pytest.mark.parametrize(
    ("sizes", "autograd"),
    [((4096, 14336, 32, 8), 180_360), ((5120, 13824, 40, 40), 192_680)],
)
def test_a_torchtitan_block_keeps_what_autograd_keeps(
    make_job: JobMaker, sizes: tuple[int, int, int, int], autograd: int
) -> None:
    """Bytes per token that saved_tensors_hooks counted in PyTorch 2.13 for such a block in bf16.

    RMSNorm as one kernel that saves its input and one fp32 statistic, rotary embedding in complex
    fp32, repeat_kv, scaled_dot_product_attention, w2(silu(w1(x)) * w3(x)).
    """
    hidden, inner, heads, groups = sizes
    config = {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "num_hidden_layers": 2,
        "vocab_size": 32_000,
    }
    job = make_job(config, recipe={"framework": "torchtitan", "precision": "bf16-mixed"})
    kept = kept_per_token(job, sharded(3), job.model.blocks[0], Numerics.HALF)
    assert kept == autograd


def test_nccl_holds_buffers_for_every_group_of_ranks(make_job: JobMaker) -> None:
    job = make_job(gpus=8)
    assert communicators(job, sharded(3)) == 1
    assert communicators(job, sharded(3, 2, tensor_parallel_size=2, pipeline_parallel_size=2)) == 3
    assert communicators(job, Layout(data_parallel_replicate_size=8)) == 1
    assert communicators(make_job(gpus=1), Layout()) == 0


def mpt(hidden: int, layers: int, heads: int, sequence_length: int) -> dict[str, Any]:
    return {
        "model_type": "mpt",
        "d_model": hidden,
        "n_layers": layers,
        "n_heads": heads,
        "expansion_ratio": 4,
        "max_seq_len": sequence_length,
        "vocab_size": 50_368,
        "no_bias": True,
        "tie_word_embeddings": True,
    }


def llama(hidden: int, layers: int, heads: int, groups: int, inner: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "intermediate_size": inner,
        "vocab_size": 32_000,
        "tie_word_embeddings": False,
    }


PUBLISHED = [
    # mosaicml/llm-foundry at 5e85bd6, scripts/train/benchmarking/README.md: these runs ran, near
    # the largest micro-batch that fits; GPU, ranks, sequence, micro-batch, steps, recompute.
    ("composer", mpt(768, 12, 12, 4096), "a100-sxm-40gb", 8, 4096, 13, 3, "none", True),
    ("composer", mpt(1024, 24, 16, 2048), "a100-sxm-40gb", 128, 2048, 18, 1, "none", True),
    ("composer", mpt(2048, 24, 16, 2048), "a100-sxm-40gb", 32, 2048, 10, 1, "none", True),
    ("composer", mpt(2560, 32, 20, 8192), "h100-sxm-80gb", 8, 8192, 3, 6, "none", True),
    ("composer", mpt(7168, 48, 56, 8192), "a100-sxm-80gb", 8, 8192, 1, 21, "full", True),
    # pytorch/torchtitan at 157a12c, docs/performance.md: Llama 2 13B and 70B on 64 A100.
    ("torchtitan", llama(5120, 40, 40, 40, 13824), "a100-sxm-80gb", 64, 4096, 2, 1, "none", True),
    ("torchtitan", llama(8192, 80, 64, 8, 28672), "a100-sxm-80gb", 64, 4096, 2, 1, "full", True),
    (
        "torchtitan",
        llama(8192, 80, 64, 8, 28672),
        "a100-sxm-80gb",
        64,
        4096,
        1,
        1,
        "selective",
        True,
    ),
    (
        "torchtitan",
        llama(8192, 80, 64, 8, 28672),
        "a100-sxm-80gb",
        64,
        4096,
        2,
        1,
        "selective",
        False,
    ),
]


@pytest.mark.parametrize("run", PUBLISHED, ids=lambda run: "-".join(map(str, (run[0], *run[2:]))))
def test_published_runs_fit_where_they_ran(make_job: JobMaker, run: tuple[Any, ...]) -> None:
    framework, model, gpu, ranks, sequence, micro_batch, steps, recompute, ran = run
    recipe = {
        "framework": framework,
        "precision": "bf16-mixed",
        "attention": "flash",
        "sequence_length": sequence,
        "global_batch_size": ranks * micro_batch * steps,
    }
    job = make_job(model, gpus=8, gpu=gpu, cluster={"nodes": ranks // 8}, recipe=recipe)
    s = sharded(
        3,
        ranks,
        micro_batch_size=micro_batch,
        gradient_accumulation_steps=steps,
        recompute=Recompute(recompute),
    )
    assert (estimate_memory(job, s).reserved_bytes <= job.usable_bytes) == ran


OFFLOADS = [
    (name, offload)
    for name in records.framework_names()
    for offload in ("none", *records.framework(name).host_memory.offloads)
]


def offload_job(framework: str, gpus: int) -> Job:
    payload = {
        "model": "meta-llama/Llama-3.2-1B",
        "cluster": {"gpu": "h100", "gpus_per_node": gpus},
        "recipe": {
            "framework": framework,
            "global_batch_size": gpus,
            "sequence_length": 64,
            "precision": "bf16-mixed",
        },
    }
    return resolve(parse_request(payload), allow_paths=False).job


@settings(max_examples=40)
@given(st.sampled_from(OFFLOADS), st.integers(1, 3))
def test_offload_takes_nothing_more_and_its_terms_add_up(
    choice: tuple[str, str], stage: int
) -> None:
    framework, offload = choice
    job = offload_job(framework, 8)
    stage = {"none": stage, "optimizer": stage, "optimizer+parameters": 3}[offload]
    wish = StrategyRequest.model_validate({"zero_stage": stage, "offload": offload})
    memory = estimate_memory(job, requested_layout(wish, job))
    amounts = ledger(memory)
    assert sum(amounts.values()) == pytest.approx(memory.reserved_bytes)
    del amounts["framework_and_context"]
    assert sum(amounts.values()) == pytest.approx(memory.peak_bytes)
    assert memory.peak_bytes <= estimate_memory(job, sharded(stage)).peak_bytes


@settings(max_examples=40)
@given(st.sampled_from(OFFLOADS), st.integers(1, 3))
def test_more_shards_never_need_more_in_any_framework(choice: tuple[str, str], stage: int) -> None:
    framework, offload = choice
    previous = float("inf")
    for gpus in (2, 4, 8, 16):
        job = offload_job(framework, gpus)
        s = sharded(stage, gpus, offload=Offload(offload))
        now = float(estimate_memory(job, s).peak_bytes)
        assert now <= previous
        previous = now
