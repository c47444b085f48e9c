from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from conftest import JobMaker

from planner.advice.plan import make_plan
from planner.advice.rules.sentences import said
from planner.core.errors import InvalidInputError, NothingFitsError
from planner.core.units import format_bytes, format_fraction, format_seconds
from planner.domain.strategy import Offload, family_keys, num_rows, vary
from planner.memory.ledger import estimate_memory
from planner.memory.room import COMFORTABLE_FRACTION
from planner.request.family import family_fields
from planner.request.schema import parse_request, resolve
from planner.request.sections import StrategyRequest
from planner.request.strategy import pinned_fields
from planner.search.space import strategies
from planner.step_time.ledger import estimate_step_time

LLAMA = "meta-llama/Llama-2-7b-hf"


@pytest.mark.parametrize("gpu", ["a100", "h100", "4090", "titan-rtx", "v100", "l4", "b200"])
def test_gpt2_fits_on_one_gpu_so_ddp_is_recommended(make_job: JobMaker, gpu: str) -> None:
    plan = make_plan(make_job("gpt2", gpus=4, gpu=gpu))
    assert plan.chosen.strategy.family == "ddp"
    assert plan.findings[0].code == "ONE002"


def test_llama_7b_needs_sharding_and_says_why_ddp_does_not_fit(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8, gpu="a100-80gb", recipe={"sequence_length": 4096})
    plan = make_plan(job)
    assert plan.chosen.strategy.family in {"zero-1", "zero-2", "zero-3"}
    assert plan.chosen.memory.reserved_bytes <= job.usable_bytes
    rejected = {row.family: row for row in plan.rejected}
    finding = rejected["ddp"].findings[0]
    assert finding.code == "MEM001"
    assert "too much" in finding.message


def test_the_choice_is_within_two_percent_of_its_familys_fastest_and_has_more_room(
    make_job: JobMaker,
) -> None:
    job = make_job(LLAMA, gpus=8)
    plan = make_plan(job)
    table = strategies(job, {"zero_stage": plan.chosen.strategy.zero_stage})
    memory, step_time = estimate_memory(job, table), estimate_step_time(job, table)
    own = family_keys(vary(plan.chosen.strategy, zero_stage=table.zero_stage[:1]))
    room = COMFORTABLE_FRACTION * job.usable_bytes
    same = (family_keys(table) == own) & (memory.reserved_bytes <= room)
    fastest = np.min(np.asarray(step_time.step_seconds)[same])
    assert plan.chosen.step_time.step_seconds <= 1.02 * fastest
    near = same & (step_time.step_seconds <= 1.02 * fastest)
    near &= table.recompute == plan.chosen.strategy.recompute
    assert plan.chosen.memory.reserved_bytes == np.min(np.asarray(memory.reserved_bytes)[near])


def test_alternatives_are_the_best_of_other_families_ranked_with_a_reason(
    make_job: JobMaker,
) -> None:
    plan = make_plan(make_job("gpt2", gpus=4))
    families = [other.candidate.strategy.family for other in plan.alternatives]
    assert {"zero-1", "zero-2", "zero-3"} <= set(families)
    assert len(set(families)) == len(families)
    assert "ddp" not in families
    assert not any(name.endswith("+offload") for name in families)
    times = [other.candidate.step_time.step_seconds for other in plan.alternatives]
    assert times == sorted(times)
    paces = ("% faster, ", "% slower, ", "as fast, ", "times as long, ")
    assert all(any(pace in other.reason for pace in paces) for other in plan.alternatives)


def test_the_search_reports_its_size(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=4, recipe={"global_batch_size": 16})
    plan = make_plan(job)
    assert plan.search.strategies == num_rows(strategies(job))
    assert 0 < plan.search.feasible <= plan.search.strategies


def test_a_wish_is_held(make_job: JobMaker) -> None:
    plan = make_plan(make_job("gpt2", gpus=4), {"zero_stage": 3, "micro_batch_size": 2})
    assert plan.chosen.strategy.zero_stage == 3
    assert plan.chosen.strategy.micro_batch_size == 2
    assert all(other.candidate.strategy.zero_stage == 3 for other in plan.alternatives)


@pytest.mark.parametrize(
    ("pinned_fields", "message"),
    [
        ({"micro_batch_size": 7}, "micro_batch_size 7"),
        ({"tensor_parallel_size": 5}, "12 attention heads"),
        ({"tensor_parallel_size": 3}, "there are 4 GPUs"),
        ({"pipeline_parallel_size": 2, "zero_stage": 3}, "LAY022"),
        ({"pipeline_parallel_size": 4, "gradient_accumulation_steps": 1}, "LAY023"),
    ],
)
def test_pinned_fields_nothing_meets_say_what_forbids_it(
    make_job: JobMaker, pinned_fields: dict[str, int], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make_plan(make_job("gpt2", gpus=4), pinned_fields)


def test_a_batch_that_does_not_split_is_refused_where_the_model_needs_no_division(
    make_job: JobMaker,
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        make_plan(make_job(gpus=4, recipe={"global_batch_size": 10}))
    assert caught.value.field == "recipe.global_batch_size"
    assert "8 or 12" in caught.value.hint
    pinned = make_plan(
        make_job(gpus=4, recipe={"global_batch_size": 10}), {"tensor_parallel_size": 2}
    )
    assert pinned.chosen.strategy.data_parallel_size == 2


def test_a_batch_is_split_by_what_the_framework_divides_anyway(make_job: JobMaker) -> None:
    recipe = {"global_batch_size": 10, "framework": "megatron"}
    plan = make_plan(make_job(gpus=4, recipe=recipe))
    assert plan.chosen.strategy.data_parallel_size == 2
    assert plan.chosen.strategy.model_parallel_size == 2
    (branch,) = (each.message for each in plan.findings if each.code == "ONE002")
    assert branch.endswith(said("ONE002.uneven", batch=10, gpus=4, fewer=8, more=12))


def test_the_flag_that_a_held_back_layout_is_asked_by_gives_it(make_job: JobMaker) -> None:
    job = make_job("meta-llama/Llama-2-70b-hf", gpus=8, gpu="rtx-4090")
    offload = {"offload": Offload.OPTIMIZER_AND_PARAMETERS}
    plan = make_plan(job, offload)
    (message,) = (each.message for each in plan.findings if each.code == "EFF002")
    family = message.rpartition("(--strategy ")[2].removesuffix(")")
    asked = StrategyRequest.model_validate({"family": family, "offload": str(offload["offload"])})
    faster = make_plan(job, pinned_fields(asked))
    gain = float(plan.chosen.step_time.step_seconds / faster.chosen.step_time.step_seconds) - 1
    assert faster.chosen.strategy.family == family
    assert f" {format_fraction(gain)} faster" in message


def test_offload_to_a_host_of_unknown_memory_says_what_it_needs(make_job: JobMaker) -> None:
    plan = make_plan(make_job(LLAMA, gpus=1, gpu="a100-40gb", recipe={"sequence_length": 512}))
    assert plan.chosen.strategy.offloads_optimizer
    (finding,) = (each for each in plan.findings if each.code == "MEM003")
    assert said("MEM003.assumed") in finding.message


def test_the_front_is_ordered_and_no_point_is_worse_in_both(make_job: JobMaker) -> None:
    points = make_plan(make_job(LLAMA, gpus=8, cluster={"nodes": 2})).pareto
    own = [point.candidate for point in points if point.gpus == 16]
    assert len(own) > 2
    for faster, smaller in pairwise(own):
        assert faster.step_time.step_seconds < smaller.step_time.step_seconds
        assert faster.memory.reserved_bytes > smaller.memory.reserved_bytes
    assert [point.gpus for point in points if point.gpus < 16] == [8, 1]


def test_the_least_memory_is_an_objective(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8)
    fast, small = make_plan(job), make_plan(job, objective="memory")
    assert small.chosen.memory.reserved_bytes < fast.chosen.memory.reserved_bytes
    table = strategies(job, {"offload": Offload.NONE})
    assert small.chosen.memory.reserved_bytes == np.min(estimate_memory(job, table).reserved_bytes)


def test_what_is_not_proposed_names_the_limit(make_job: JobMaker) -> None:
    plan = make_plan(
        make_job(LLAMA, gpus=8, cluster={"nodes": 2}, recipe={"framework": "megatron"})
    )
    codes = {row.family: row.findings[0].code for row in plan.rejected}
    assert codes["tp=16"] == "LAY020"
    assert codes["local-sgd"] == "LAY035"
    assert codes["pp+zero-3"] == "LAY022"


PLAIN = {
    "zero_stage": 0,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "context_parallel_size": 1,
}
"""What --strategy ddp pins: data parallelism and nothing else."""


def test_a_micro_batch_that_leaves_a_rest_is_answered_by_the_nearest_that_do_not(
    make_job: JobMaker,
) -> None:
    job = make_job("gpt2", gpus=2, recipe={"global_batch_size": 30})
    for pinned in ({"micro_batch_size": 10}, PLAIN | {"micro_batch_size": 10}):
        with pytest.raises(InvalidInputError) as caught:
            make_plan(job, pinned)
        assert caught.value.hint.endswith("nearest: 20 or 40; or micro-batches of 5 or 15")
    assert make_plan(job, {"micro_batch_size": 15}).chosen.strategy.family == "ddp"


TOO_LARGE: list[tuple[dict[str, Any], dict[str, object] | None, str]] = [
    ({"model": "meta-llama/Llama-2-70b-hf", "gpus": 2, "gpu": "4090"}, None, "GPUs would fit"),
    (
        {"model": "meta-llama/Llama-2-70b-hf", "gpus": 4, "gpu": "a100-80gb"},
        None,
        "--offload optimizer+parameters would fit, in",
    ),
    (
        {"model": LLAMA, "gpus": 1, "gpu": "a100", "recipe": {"framework": "composer"}},
        None,
        "pure bf16",
    ),
    (
        {"model": LLAMA, "gpus": 8},
        {"zero_stage": 0, "tensor_parallel_size": 1, "pipeline_parallel_size": 1},
        "without the pinned strategy",
    ),
    (
        {
            "model": "meta-llama/Llama-3.1-8B",
            "gpus": 1,
            "gpu": "h200",
            "recipe": {"sequence_length": 131072, "optimizer": "sgd"},
        },
        None,
        "sequences of",
    ),
    (
        {
            "model": "meta-llama/Llama-3.1-8B",
            "gpus": 1,
            "gpu": "h100",
            "recipe": {"sequence_length": 98304, "global_batch_size": 8, "method": "lora"},
        },
        None,
        "a chunked loss would fit (--loss chunked)",
    ),
]


@pytest.mark.parametrize(("case", "pinned_fields", "remedy"), TOO_LARGE)
def test_when_nothing_fits_it_says_by_how_much_and_what_would(
    make_job: JobMaker, case: dict[str, Any], pinned_fields: dict[str, int] | None, remedy: str
) -> None:
    arguments = dict(case)
    job = make_job(arguments.pop("model"), **arguments)
    with pytest.raises(NothingFitsError, match="too much") as caught:
        make_plan(job, pinned_fields)
    assert remedy in caught.value.hint


def test_several_nodes_are_planned_over_their_network(make_job: JobMaker) -> None:
    slow = make_job(LLAMA, gpus=8, cluster={"nodes": 2, "inter_node": "ethernet-25g"})
    fast = make_job(LLAMA, gpus=8, cluster={"nodes": 2, "inter_node": "infiniband-ndr"})
    over_ethernet, over_infiniband = make_plan(slow), make_plan(fast)
    assert over_ethernet.findings[0].code == "MUL003"
    assert "ethernet-25g" in over_ethernet.findings[0].message
    assert over_ethernet.chosen.strategy.zero_stage <= 1
    assert over_infiniband.findings[0].code == "MUL002"
    assert over_infiniband.chosen.strategy.shards_gradients


def test_a_network_is_called_fast_by_its_own_speed(make_job: JobMaker) -> None:
    """A GPU of an H800 node reaches its neighbours more slowly than the node reaches others."""
    cluster = {"nodes": 2, "inter_node": "8x infiniband-ndr"}
    plan = make_plan(make_job(LLAMA, gpus=8, gpu="h800", cluster=cluster))
    assert plan.findings[0].code == "MUL002"
    for fact in ("8x infiniband-ndr (", "360 GB/s", "60.4 GB/s"):
        assert fact in plan.findings[0].message


@pytest.mark.parametrize(
    ("gpu", "network", "branch"),
    [
        ("a100", "infiniband-ndr", "MUL002"),
        ("h100", "infiniband-ndr", "MUL003"),
        ("h100", "2x infiniband-ndr", "MUL002"),
        ("b200", "2x infiniband-ndr", "MUL003"),
        ("rtx-4090", "roce-100g", "MUL002"),
        ("a100", "roce-100g", "MUL003"),
    ],
)
def test_a_network_is_fast_or_slow_beside_the_gpus_that_it_feeds(
    make_job: JobMaker, gpu: str, network: str, branch: str
) -> None:
    cluster = {"nodes": 2, "inter_node": network}
    plan = make_plan(make_job("meta-llama/Llama-2-13b-hf", gpus=8, gpu=gpu, cluster=cluster))
    assert plan.findings[0].code == branch


def test_what_changes_the_model_says_what_it_must_earn(make_job: JobMaker) -> None:
    recipe = {"global_batch_size": 32, "sequence_length": 128}
    plan = make_plan(make_job("gpt2-xl", gpus=8, gpu="rtx-4090", recipe=recipe))
    said = {finding.code: finding.message for finding in plan.findings}
    assert plan.chosen.strategy.pipeline_parallel_size > 1
    assert "10 %" in said["EFF001"]


def test_what_only_offload_holds_is_planned_and_names_the_hosts_memory(make_job: JobMaker) -> None:
    job = make_job(
        "Qwen/Qwen2.5-32B",
        gpus=8,
        cluster={"instance": "p4de.24xlarge", "gpu": None},
        recipe={"optimizer": "adamw"},
    )
    plan = make_plan(job)
    assert plan.chosen.strategy.offloads_optimizer
    assert all(row.findings for row in plan.rejected)
    of_host = [row.findings[0] for row in plan.rejected if row.findings[0].code == "MEM004"]
    assert of_host
    assert all(" 1,152 GiB" in finding.message for finding in of_host)


def test_a_host_that_is_too_small_is_what_the_error_names(make_job: JobMaker) -> None:
    job = make_job(
        "EleutherAI/gpt-neox-20b", gpus=4, cluster={"instance": "g5.12xlarge", "gpu": None}
    )
    with pytest.raises(NothingFitsError) as caught:
        make_plan(job, {"offload": Offload.OPTIMIZER_AND_PARAMETERS})
    assert "of 192 GiB of each node's memory" in caught.value.message
    assert " -" not in caught.value.message


def test_offload_that_is_not_needed_is_said_to_be_so(make_job: JobMaker) -> None:
    job = make_job(gpus=4, recipe={"framework": "deepspeed"})
    needless = make_plan(job, {"zero_stage": 2, "offload": Offload.OPTIMIZER})
    (finding,) = (each for each in needless.findings if each.code == "MEM003")
    assert "; it is not needed" in finding.message
    plan = make_plan(make_job(LLAMA, gpus=1, gpu="a100-40gb", recipe={"sequence_length": 512}))
    (finding,) = (each for each in plan.findings if each.code == "MEM003")
    assert "does not fit" in finding.message


def test_offload_is_taken_where_the_ranges_of_both_steps_do_not_meet(make_job: JobMaker) -> None:
    """8 x 8 RTX 4090 over 10 GbE: what fits on the cards is tight and gathers 70B parameters every step."""
    job = make_job(
        "meta-llama/Llama-3.1-70B",
        gpu="rtx-4090",
        gpus=8,
        cluster={"nodes": 8, "inter_node": "ethernet-10g"},
        recipe={"sequence_length": 4096, "global_batch_size": 128},
    )
    plan, kept = make_plan(job), make_plan(job, {"offload": Offload.NONE})
    assert plan.chosen.strategy.offloads_optimizer
    assert plan.chosen.step_time.high_seconds < kept.chosen.step_time.low_seconds
    messages = {finding.code: finding.message for finding in plan.findings}
    assert f" {kept.chosen.strategy.family} at " in messages["MEM003"]
    assert plan.chosen.strategy in [point.candidate.strategy for point in plan.pareto]
    smallest = make_plan(job, objective="memory")
    assert not smallest.chosen.strategy.offloads_optimizer


def test_a_strategy_by_name_is_not_answered_with_offload(make_job: JobMaker) -> None:
    job = make_job(
        "meta-llama/Llama-3.1-70B",
        gpu="h100",
        gpus=8,
        cluster={"nodes": 2},
        recipe={"sequence_length": 4096, "global_batch_size": 128},
    )
    with pytest.raises(NothingFitsError) as caught:
        make_plan(job, family_fields("fsdp"))
    assert "--offload optimizer+parameters would fit" in caught.value.hint
    assert make_plan(job, family_fields("fsdp+offload")).chosen.strategy.family == "zero-3+offload"


def test_adapters_over_the_hosts_memory_are_named_before_more_gpus() -> None:
    cluster = {"gpu": "rtx-4090", "gpus_per_node": 2}
    request = parse_request({"model": "meta-llama/Llama-3.1-70B", "cluster": cluster})
    with pytest.raises(NothingFitsError) as caught:
        make_plan(resolve(request, allow_paths=False).job)
    first = caught.value.remedies[0]
    assert (first.field, first.value) == ("recipe.method", "qlora")
    assert "a step" in first.cost
    recipe = {first.field.removeprefix("recipe."): first.value}
    adapted = parse_request({"model": request.model, "cluster": cluster, "recipe": recipe})
    assert make_plan(resolve(adapted, allow_paths=False).job).chosen.fits


def test_what_is_said_of_adapters_is_what_asking_for_them_gives() -> None:
    """The fastest layout that fits is one that no script runs with adapters."""
    cluster = {"gpu": "rtx-4090", "gpus_per_node": 2}
    recipe = {"global_batch_size": 64}
    request = {"model": "meta-llama/Llama-3.1-8B", "cluster": cluster, "recipe": recipe}
    with pytest.raises(NothingFitsError) as caught:
        make_plan(resolve(parse_request(request), allow_paths=False).job)
    adapted = [each for each in caught.value.remedies if each.field == "recipe.method"]
    assert [each.value for each in adapted] == ["lora", "qlora"]
    for remedy in adapted:
        asked = parse_request({**request, "recipe": {**recipe, "method": remedy.value}})
        chosen = make_plan(resolve(asked, allow_paths=False).job).chosen
        assert f" in {format_bytes(chosen.memory.reserved_bytes)} of each GPU, " in remedy.sentence
        step = format_seconds(chosen.step_time.step_seconds)
        assert remedy.sentence.endswith(f" {step} a step of 64 sequences")


def test_a_technique_that_was_asked_for_is_said_to_be(make_job: JobMaker) -> None:
    plan = make_plan(make_job("gpt2", gpus=4), {"pipeline_parallel_size": 2})
    messages = {finding.code: finding.message for finding in plan.findings}
    asked = said("ONE002.asked", asked="pipeline parallelism")
    assert messages["ONE002"].endswith(asked)
    assert messages["EFF001"].endswith(said("EFF001.asked"))


def test_a_card_without_16_bit_matmuls_gains_nothing_by_bf16() -> None:
    cluster = {"gpu": "gtx-1080ti", "gpus_per_node": 2}
    recipe = {"precision": "bf16-mixed"}
    request = parse_request({"model": "gpt2", "cluster": cluster, "recipe": recipe})
    plan = make_plan(resolve(request, allow_paths=False).job)
    (said,) = (each.message for each in plan.findings if each.code == "REC001")
    assert "no bf16 matmuls" in said
    assert "--precision fp32" in said
