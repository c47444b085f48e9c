from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import JobMaker

from planner.advice.plan import make_plan
from planner.core.errors import InvalidInputError, UnsupportedError
from planner.domain.recompute_modules import number_of
from planner.domain.strategy import (
    Layout,
    Offload,
    PipelineSchedule,
    Recompute,
    join,
    num_rows,
    vary,
)
from planner.search.limits import LIMITS, check, legal, sizes, violations, violations_of_each
from planner.search.limits.base import Limit

Case = tuple[dict[str, Any], dict[str, Any]]
MIXTRAL = "mistralai/Mixtral-8x7B-v0.1"
TWO_NODES = {"gpus": 4, "cluster": {"nodes": 2}}
DP4: dict[str, Any] = {"data_parallel_replicate_size": 4, "gradient_accumulation_steps": 4}
PP2: dict[str, Any] = {"data_parallel_replicate_size": 2, "pipeline_parallel_size": 2}


def job_of(**parts: Any) -> dict[str, Any]:
    recipe = {"global_batch_size": 16, **parts.pop("recipe", {})}
    return {"model": "gpt2", "gpus": 4, "recipe": recipe, **parts}


def in_framework(name: str, **parts: Any) -> dict[str, Any]:
    return job_of(recipe={"framework": name}, **parts)


SHORT_KV = {"model_type": "llama", "num_attention_heads": 12, "num_key_value_heads": 4}
SHORT_KV |= {"hidden_size": 768, "num_hidden_layers": 4, "vocab_size": 32000}

BREAKS: dict[str, Case] = {
    "LAY001": (job_of(model="google-t5/t5-small"), {"tensor_parallel_size": 2}),
    "LAY002": (job_of(gpus=8), {"tensor_parallel_size": 8}),
    "LAY003": (in_framework("megatron", model=MIXTRAL), {"expert_parallel_size": 3}),
    "LAY004": (job_of(recipe={"sequence_length": 1000}), {"context_parallel_size": 3}),
    "LAY005": (job_of(gpus=16), {"pipeline_parallel_size": 16}),
    "LAY006": (
        job_of(recipe={"framework": "deepspeed", "method": "lora"}),
        {"tensor_parallel_size": 2},
    ),
    "LAY007": (job_of(), {"synchronize_every": 4, "zero_stage": 1}),
    "LAY008": (job_of(), {"offload": Offload.OPTIMIZER, "zero_stage": 3}),
    "LAY009": (job_of(), {"offload": Offload.OPTIMIZER_AND_PARAMETERS, "zero_stage": 1}),
    "LAY010": (job_of(), {"data_parallel_replicate_size": 3}),
    "LAY011": (job_of(), {"data_parallel_shard_size": 4}),
    "LAY012": (job_of(), {"micro_batch_size": 3}),
    "LAY014": (job_of(), {"virtual_pipeline_size": 2}),
    "LAY016": (job_of(), {"recompute_layers": 4}),
    "LAY017": (
        job_of(gpus=1, recipe={"optimizer_in_backward": True, "global_batch_size": 2}),
        {"gradient_accumulation_steps": 2},
    ),
    "LAY018": (in_framework("megatron"), {"recompute_modules": number_of(["mlp"])}),
    "LAY019": (
        in_framework("megatron"),
        {"recompute": Recompute.SELECTIVE, "recompute_modules": number_of(["moe"])},
    ),
    "LAY028": (
        job_of(model=MIXTRAL, recipe={"framework": "megatron", "expert_parallel_overlap": True}),
        {"recompute": Recompute.SELECTIVE, "recompute_modules": number_of(["moe"])},
    ),
    "LAY015": (
        in_framework("deepspeed", gpus=8),
        {"context_parallel_size": 8},
    ),
    "LAY013": (job_of(model=SHORT_KV), {"tensor_parallel_size": 6}),
    "LAY020": (job_of(**TWO_NODES, model=MIXTRAL), {"tensor_parallel_size": 8}),
    "LAY021": (job_of(**TWO_NODES), {"tensor_parallel_size": 3}),
    "LAY022": (job_of(), {"pipeline_parallel_size": 2, "zero_stage": 2}),
    "LAY023": (job_of(), {"pipeline_parallel_size": 2, "gradient_accumulation_steps": 1}),
    "LAY024": (job_of(), {**PP2, "virtual_pipeline_size": 5}),
    "LAY025": (in_framework("megatron", model=MIXTRAL), {"expert_parallel_size": 8}),
    "LAY026": (job_of(recipe={"sequence_length": 512}), {"context_parallel_size": 4}),
    "LAY027": (
        job_of(),
        {
            **PP2,
            "pipeline_schedule": PipelineSchedule.ZERO_BUBBLE_H1,
            "recompute": Recompute.FULL,
            "gradient_accumulation_steps": 8,
        },
    ),
    "LAY029": (
        in_framework("megatron", model=MIXTRAL),
        {"tensor_parallel_size": 2, "expert_parallel_size": 4, "expert_tensor_parallel_size": 4},
    ),
    "LAY030": (in_framework("accelerate"), {"pipeline_parallel_size": 2}),
    "LAY031": (in_framework("megatron"), {"zero_stage": 3, "data_parallel_shard_size": 4}),
    "LAY032": (
        in_framework("megatron"),
        {**PP2, "pipeline_schedule": PipelineSchedule.ZERO_BUBBLE_V},
    ),
    "LAY033": (job_of(), {"sequence_parallel": True}),
    "LAY034": (
        in_framework("deepspeed"),
        {"zero_stage": 3, "data_parallel_replicate_size": 2, "data_parallel_shard_size": 2},
    ),
    "LAY035": (in_framework("megatron"), {"synchronize_every": 4}),
    "LAY036": (
        in_framework("accelerate"),
        {"tensor_parallel_size": 2, "data_parallel_replicate_size": 2},
    ),
    "LAY037": (in_framework("accelerate"), {"recompute": Recompute.SELECTIVE}),
    "LAY038": (
        job_of(),
        {"recompute": Recompute.SELECTIVE, "recompute_modules": number_of(["mlp"])},
    ),
    "LAY041": (job_of(recipe={"job": "dpo"}), {"tensor_parallel_size": 2}),
    "LAY040": (in_framework("megatron", model=MIXTRAL), {"tensor_parallel_size": 2}),
    "LAY039": (
        in_framework("torch", model=MIXTRAL),
        {"tensor_parallel_size": 2, "expert_tensor_parallel_size": 1},
    ),
}
"""A job and a layout that break each limit; plain DDP on the same job breaks none."""
OF_RECIPES = {"LAY017"}
"""Limits of recipes that plain DDP cannot run either."""


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.code)
def test_a_limit_is_broken_by_its_case_and_not_by_plain_data_parallelism(
    make_job: JobMaker, limit: Limit
) -> None:
    parts, layout = BREAKS[limit.code]
    parts = dict(parts)
    job = make_job(parts.pop("model"), **parts)
    broken = {each.code: breach for each, breach in violations(job, Layout(**layout))}
    assert limit.code in broken
    breach = broken[limit.code]
    assert breach.reason
    assert "{" not in breach.reason + breach.advice
    assert breach.field.split(".")[0] in {"strategy", "recipe"}
    steps, rest = divmod(16, job.cluster.world_size)
    plain = Layout(
        data_parallel_replicate_size=job.cluster.world_size, gradient_accumulation_steps=steps
    )
    assert rest == 0
    if limit.code in OF_RECIPES:
        return
    assert limit.code not in {each.code for each, _ in violations(job, plain)}


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.code)
def test_every_limit_says_why_what_instead_and_where_from(limit: Limit) -> None:
    statement, *_ = limit.text.splitlines()
    assert statement.endswith(".")
    for heading in ("Why:", "Instead:", "Source:"):
        assert f"\n\n{heading} " in limit.text
    assert "_" not in limit.name


@pytest.mark.parametrize("code", BREAKS)
def test_rows_of_a_table_are_judged_as_they_are_alone(make_job: JobMaker, code: str) -> None:
    parts, layout = BREAKS[code]
    parts = dict(parts)
    job = make_job(parts.pop("model"), **parts)
    layouts = [Layout(**layout), Layout(**DP4), Layout(**PP2)]
    table = join([vary(each, zero_stage=np.array([each.zero_stage])) for each in layouts])
    assert num_rows(table) == len(layouts)
    for limit in LIMITS:
        judged = np.broadcast_to(limit.judge(job, table).broken, len(layouts))
        alone = [bool(limit.judge(job, each).broken) for each in layouts]
        assert judged.tolist() == alone, limit.code
    broken = tuple(violations(job, each) for each in layouts)
    assert legal(job, table).tolist() == [not each for each in broken]
    assert violations_of_each(job, layouts) == broken


def test_what_several_layouts_break_is_said_of_each_in_its_own_words(make_job: JobMaker) -> None:
    job = make_job(**in_framework("composer"))
    layouts = [Layout(pipeline_parallel_size=2), Layout(context_parallel_size=2)]
    reasons = [
        [breach.reason for limit, breach in broken if limit.code == "LAY030"]
        for broken in violations_of_each(job, layouts)
    ]
    assert [len(each) for each in reasons] == [1, 1]
    assert "no pipeline parallelism" in reasons[0][0]
    assert "no context parallelism" in reasons[1][0]


def test_experts_fold_into_tensor_parallel_ranks_where_the_framework_can(
    make_job: JobMaker,
) -> None:
    s = Layout(
        data_parallel_shard_size=2,
        tensor_parallel_size=4,
        expert_parallel_size=8,
        zero_stage=1,
        gradient_accumulation_steps=8,
    )
    broken = {}
    for framework in ("megatron", "torch", "torchtitan"):
        parts = in_framework(framework, gpus=8) | {"model": MIXTRAL}
        job = make_job(**parts)
        broken[framework] = "LAY025" in {limit.code for limit, _ in violations(job, s)}
    assert broken == {"megatron": False, "torch": True, "torchtitan": False}


def test_adapters_stand_beside_divided_experts_in_megatron_alone(make_job: JobMaker) -> None:
    s = Layout(data_parallel_shard_size=4, expert_parallel_size=4, gradient_accumulation_steps=4)
    for framework, refused in (("megatron", []), ("torchtitan", ["LAY006"])):
        recipe = {"framework": framework, "method": "lora", "global_batch_size": 16}
        job = make_job("Qwen/Qwen3-30B-A3B", gpus=4, recipe=recipe)
        found = violations(job, replace(s, zero_stage=1))
        assert [limit.code for limit, _ in found if limit.code == "LAY006"] == refused


def test_adapters_are_divided_by_tensor_parallelism_in_megatron_and_torch_alone(
    make_job: JobMaker,
) -> None:
    s = Layout(tensor_parallel_size=4, gradient_accumulation_steps=16)
    refused = {}
    for framework in ("megatron", "torch", "torchtitan", "deepspeed"):
        recipe = {"framework": framework, "method": "lora", "global_batch_size": 16}
        job = make_job("meta-llama/Llama-2-7b-hf", gpus=4, recipe=recipe)
        refused[framework] = "LAY006" in {limit.code for limit, _ in violations(job, s)}
    assert refused == {"megatron": False, "torch": False, "torchtitan": True, "deepspeed": True}


def test_a_trunk_without_attention_has_no_heads_to_divide(make_job: JobMaker) -> None:
    job = make_job(gpus=4, recipe={"framework": "deepspeed", "global_batch_size": 16})
    parts = tuple(replace(part, attention=None) for part in job.model.parts)
    without = replace(job, model=replace(job.model, parts=parts))
    for s in (Layout(tensor_parallel_size=2), Layout(context_parallel_size=2)):
        broken = {limit.judge for limit, _ in violations(without, s)}
        broken -= {limit.judge for limit, _ in violations(job, s)}
        of_tensor = {sizes.heads_do_not_divide, sizes.key_value_heads_do_not_divide}
        of_context = {sizes.heads_do_not_divide_over_context}
        assert broken == (of_tensor if s.tensor_parallel_size > 1 else of_context)


@pytest.mark.parametrize(("length", "is_broken"), [(512, False), (516, False), (518, True)])
def test_both_pieces_of_a_rank_are_whole(
    make_job: JobMaker, length: int, *, is_broken: bool
) -> None:
    job = make_job(gpus=2, recipe={"sequence_length": length, "global_batch_size": 4})
    s = Layout(context_parallel_size=2, gradient_accumulation_steps=4)
    assert ("LAY026" in {limit.code for limit, _ in violations(job, s)}) == is_broken


@pytest.mark.parametrize(("given", "is_broken"), [(0, False), (1, False), (2, True), (4, True)])
def test_where_experts_take_the_place_of_tensors_their_own_size_is_known(
    make_job: JobMaker, given: int, *, is_broken: bool
) -> None:
    """Eight experts over 4 x 2 ranks are whole, so none is divided by tensor parallelism."""
    job = make_job(MIXTRAL, gpus=8, recipe={"framework": "torch", "global_batch_size": 16})
    s = Layout(
        tensor_parallel_size=4,
        data_parallel_shard_size=2,
        zero_stage=3,
        expert_parallel_size=8,
        expert_tensor_parallel_size=given,
    )
    assert ("LAY039" in {limit.code for limit, _ in violations(job, s)}) == is_broken


def test_customs_and_what_other_frameworks_can_do_are_estimated_and_nothing_else() -> None:
    """Numbers tell them apart but for what was thought of later, and heads, which a framework may pad."""

    def numbers(limits: Iterable[Limit]) -> set[int]:
        return {int(limit.code.removeprefix("LAY")) for limit in limits}

    customs, of_frameworks = set(range(20, 28)), {13, 15, *range(30, 38), 39, 40}
    assert numbers(limit for limit in LIMITS if not limit.is_hard) == customs | of_frameworks
    of_models = {1, 6, 8, 38, 41}
    assert numbers(limit for limit in LIMITS if limit.is_ability) == of_frameworks | of_models


def test_only_what_nobody_can_run_is_refused_an_estimate(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=4, recipe={"global_batch_size": 16})
    check(
        job,
        Layout(
            data_parallel_replicate_size=2,
            pipeline_parallel_size=2,
            zero_stage=0,
            gradient_accumulation_steps=8,
        ),
    )
    customs = Layout(
        data_parallel_shard_size=2,
        pipeline_parallel_size=2,
        zero_stage=3,
        gradient_accumulation_steps=8,
    )
    assert [limit.code for limit, _ in violations(job, customs)] == ["LAY022"]
    check(job, customs)
    with pytest.raises(InvalidInputError):
        check(job, Layout())
    with pytest.raises(UnsupportedError):
        check(make_job("google-t5/t5-small"), Layout(pipeline_parallel_size=4))


def test_a_rack_joined_by_nvlink_counts_as_one_node(make_job: JobMaker) -> None:
    def broken(size: int, **cluster: int) -> set[str]:
        job = make_job("gpt2", gpus=4, gpu="gb200", cluster=cluster)
        layout = Layout(
            tensor_parallel_size=size,
            data_parallel_replicate_size=job.cluster.world_size // size,
        )
        return {limit.code for limit, _ in violations(job, layout)} & {"LAY020", "LAY021"}

    assert broken(6, nodes=18) == set()
    assert broken(6, nodes=18, nvlink_domain_gpus=4) == {"LAY020"}
    assert broken(6, nodes=36) == set()
    assert broken(9, nodes=36, nvlink_domain_gpus=24) == {"LAY021"}


@pytest.mark.parametrize(
    ("micro_batch", "steps", "hint"),
    [
        (1, 1, "use 16 accumulation steps, or a batch of 4"),
        (3, 5, "nearest: 60 or 72; or micro-batches of 2 or 4"),
    ],
)
def test_a_batch_that_does_not_add_up_says_what_would(
    make_job: JobMaker, micro_batch: int, steps: int, hint: str
) -> None:
    job = make_job("gpt2", gpus=4, recipe={"global_batch_size": 64})
    s = Layout(
        data_parallel_replicate_size=4,
        micro_batch_size=micro_batch,
        gradient_accumulation_steps=steps,
    )
    ((limit, breach),) = violations(job, s)
    assert limit.code == "LAY012"
    assert breach.advice.endswith(hint)


def test_tokens_are_exchanged_for_whole_heads_of_a_tensor_parallel_rank(
    make_job: JobMaker,
) -> None:
    """28 heads: 4 ranks have 7 each, 7 more divide those, 2 do not."""
    recipe = {"framework": "deepspeed", "sequence_length": 65536, "global_batch_size": 8}
    codes = []
    for tensor, context in ((1, 4), (1, 8), (4, 7), (4, 2), (8, 1)):
        gpus, described = tensor * context, {"intra_node": "nvlink-3"}
        job = make_job("Qwen/Qwen2.5-7B", gpus=gpus, cluster=described, recipe=recipe)
        s = Layout(
            tensor_parallel_size=tensor,
            context_parallel_size=context,
            gradient_accumulation_steps=8,
        )
        codes.append("LAY015" in {limit.code for limit, _ in violations(job, s)})
    assert codes == [False, True, False, True, False]
    ring = make_job("Qwen/Qwen2.5-7B", gpus=8, recipe={**recipe, "framework": "megatron"})
    found = violations(ring, Layout(context_parallel_size=8, gradient_accumulation_steps=8))
    assert "LAY015" not in {limit.code for limit, _ in found}


def test_one_key_value_head_is_answered_by_what_replicates_it(make_job: JobMaker) -> None:
    breaches = dict(violations(make_job("google/gemma-2b"), Layout(tensor_parallel_size=2)))
    advice = [breach.advice for limit, breach in breaches.items() if limit.code == "LAY013"]
    assert advice == [
        "each rank needs the one head: no tensor parallelism, or --framework megatron"
    ]


def test_experts_that_are_not_there_are_not_counted(make_job: JobMaker) -> None:
    with pytest.raises(
        InvalidInputError, match="expert_parallel_size 2 deals out experts"
    ) as caught:
        make_plan(make_job("gpt2", gpus=4), {"expert_parallel_size": 2})
    assert caught.value.hint == "leave it at 1"
