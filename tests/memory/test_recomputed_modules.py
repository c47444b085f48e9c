"""Single modules of a block recompute: what each frees, which products it repeats, and what stays as it was."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from conftest import JobMaker

from planner.core.errors import PlannerError
from planner.domain.job import Job
from planner.domain.model import Part
from planner.domain.recompute_modules import MODULES, names_of, number_of, words_of
from planner.domain.strategy import Layout, Recompute
from planner.parallel.activations import block_retained_bytes, part_kept_bytes
from planner.search.candidate import estimate
from planner.search.limits import check
from planner.search.space import strategies

LLAMA = "meta-llama/Llama-3.1-8B"
DEEPSEEK = "deepseek-ai/DeepSeek-V3"
LENGTH = 4096
HIDDEN, INNER = 4096, 14336
"""Of Llama 3.1 8B."""
WIDE, EXPERT, CHOSEN, EXPERTS, HEADS = 7168, 2048, 8, 256, 128
PLAIN, ROTARY, VALUE, QUERY_LATENT, LATENT = 128, 64, 128, 1536, 512
"""Of DeepSeek-V3: its config.json."""


def layout(*modules: str, **sizes: Any) -> Layout:
    sizes = {"data_parallel_shard_size": 8, "zero_stage": 1, **sizes}
    return Layout(recompute=Recompute.SELECTIVE, recompute_modules=number_of(modules), **sizes)


def made(make_job: JobMaker, model: str = LLAMA, **recipe: Any) -> Job:
    recipe = {"framework": "megatron", "attention": "flash", "global_batch_size": 8, **recipe}
    return make_job(model, gpus=8, recipe={"sequence_length": LENGTH, **recipe})


def freed_per_token(job: Job, part: Part, modules: Sequence[str]) -> float:
    whole = block_retained_bytes(job, layout(), part)
    return float(whole - block_retained_bytes(job, layout(*modules), part)) / LENGTH


@pytest.mark.parametrize(
    ("modules", "freed"),
    [
        (["mlp"], 2 * HIDDEN + 3 * 2 * INNER),
        (["layernorm"], 0),  # a part of the first matmul, which recomputes nothing alone
        (["core_attn"], 0),  # fused attention repeats the scores anyway
    ],
)
def test_a_dense_block_frees_what_its_mlp_leaves(
    make_job: JobMaker, modules: list[str], freed: float
) -> None:
    job = made(make_job)
    (block,) = job.model.blocks
    assert freed_per_token(job, block, modules) == freed


_INPUTS, _INNERS = 2 * WIDE, 3 * 2 * EXPERT
"""What one expert keeps: its input; gate, up and their product."""
_QUERIES_AND_KEYS = 2 * 2 * HEADS * (PLAIN + ROTARY)


@pytest.mark.parametrize(
    ("modules", "freed"),
    [
        (["moe_act"], 2 * CHOSEN * EXPERT),
        (["shared_experts"], _INNERS),
        (["layernorm"], 2 * 2 * WIDE),
        (["mla_up_proj"], 2 * (QUERY_LATENT + LATENT) + _QUERIES_AND_KEYS + 2 * HEADS * VALUE),
        (["moe"], 10 * EXPERTS + (CHOSEN + 1) * (_INPUTS + _INNERS) - _INPUTS),
        # The layer's checkpoint is the norm's output, which is computed again too.
        (["moe", "layernorm"], 10 * EXPERTS + (CHOSEN + 1) * (_INPUTS + _INNERS) + _INPUTS),
        (["moe_act", "layernorm"], 2 * CHOSEN * EXPERT + 2 * 2 * WIDE),
    ],
)
def test_a_mixtures_block_frees_what_each_module_leaves(
    make_job: JobMaker, modules: list[str], freed: float
) -> None:
    job = made(make_job, DEEPSEEK)
    (block,) = (part for part in job.model.blocks if "moe" in part.modules)
    assert freed_per_token(job, block, modules) == freed


def test_each_module_repeats_its_own_weights_products(make_job: JobMaker) -> None:
    def weights(part: Part) -> dict[str, int]:
        return {
            name: sum(
                layer.in_features * layer.out_features * (layer.experts_per_token or 1)
                for layer in module.repeated.linears
            )
            for name, module in part.modules.items()
        }

    (llama,) = made(make_job).model.blocks
    assert weights(llama) == {"mlp": 3 * HIDDEN * INNER}
    _, mixture = made(make_job, DEEPSEEK).model.blocks
    assert weights(mixture) == {
        "moe": WIDE * EXPERTS + (CHOSEN + 1) * 3 * WIDE * EXPERT,
        "shared_experts": 3 * WIDE * EXPERT,
        "mla_up_proj": QUERY_LATENT * HEADS * (PLAIN + ROTARY) + LATENT * HEADS * (PLAIN + VALUE),
        "moe_act": 0,
        "layernorm": 0,
    }


@pytest.mark.parametrize("attention", ["eager", "flash"])
@pytest.mark.parametrize("model", [LLAMA, DEEPSEEK])
def test_core_attention_alone_is_what_selective_always_was(
    make_job: JobMaker, model: str, attention: str
) -> None:
    job = made(make_job, model, attention=attention)
    unnamed, named = (estimate(job, layout(*modules)) for modules in ([], ["core_attn"]))
    assert unnamed.memory.terms == named.memory.terms
    assert unnamed.step_time.terms == named.step_time.terms
    for part in job.model.blocks:
        whole = part_kept_bytes(job, replace(layout(), recompute=Recompute.NONE), part)
        assert part.attention is not None
        scores = part.attention.eager_bytes_per_score[-1] * part.attention.num_heads * LENGTH**2
        expected = whole - scores if attention == "eager" else whole
        assert block_retained_bytes(job, layout(), part) == pytest.approx(expected)


def test_other_modules_leave_the_scores_as_they_are(make_job: JobMaker) -> None:
    job = made(make_job, attention="eager")
    (block,) = job.model.blocks
    none = block_retained_bytes(job, replace(layout(), recompute=Recompute.NONE), block)
    mlp = block_retained_bytes(job, layout("mlp"), block)
    both = block_retained_bytes(job, layout("mlp", "core_attn"), block)
    assert none - mlp == LENGTH * (2 * HIDDEN + 3 * 2 * INNER)
    assert both < mlp


def test_a_search_holds_the_modules_that_are_asked_for(make_job: JobMaker) -> None:
    job = made(make_job)
    named = number_of(["mlp", "layernorm"])
    table = strategies(job, {"recompute_modules": named})
    assert set(table.recompute_modules.tolist()) == {named}
    assert set(table.recompute.tolist()) == {Recompute.SELECTIVE}
    assert set(strategies(job).recompute_modules.tolist()) == {0}


def test_modules_are_written_by_their_names() -> None:
    named = layout("layernorm", "moe_act")
    assert named.contract()["recompute_modules"] == ["layernorm", "moe_act"]
    assert layout().contract()["recompute_modules"] == []
    for name in MODULES:
        assert names_of(number_of([name, name])) == (name,)
    assert words_of(named.recompute_modules) == "layernorm, moe_act"


@pytest.mark.parametrize(
    ("model", "recipe", "s", "reason"),
    [
        (LLAMA, {}, replace(layout("mlp"), recompute=Recompute.FULL), "recompute is full"),
        (LLAMA, {}, layout("moe_act", "mla_up_proj"), "has no moe_act, mla_up_proj"),
        (LLAMA, {"framework": "torch"}, layout("mlp"), "torch cannot recompute"),
        (DEEPSEEK, {"expert_parallel_overlap": True}, layout("moe"), "overlapped"),
    ],
)
def test_what_cannot_recompute_is_refused_by_name(
    make_job: JobMaker, model: str, recipe: dict[str, Any], s: Layout, reason: str
) -> None:
    with pytest.raises(PlannerError, match=reason):
        check(made(make_job, model, **recipe), s)
