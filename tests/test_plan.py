from typing import Any

import numpy as np
import pytest
from conftest import JobMaker

from planner.candidate import estimate
from planner.errors import InvalidInputError, NothingFitsError
from planner.plan import make_plan
from planner.strategy import strategies

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
    rejected = {row.candidate.strategy.family: row for row in plan.rejected}
    finding = rejected["ddp"].findings[0]
    assert finding.code == "MEM001"
    assert "too much" in finding.message


def test_the_choice_is_the_fastest_of_its_family_that_leaves_room(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8)
    plan = make_plan(job)
    table = estimate(job, strategies(job))
    same = table.strategy.zero_stage == plan.chosen.strategy.zero_stage
    fastest = np.min(table.step_time.step_seconds[same & table.is_comfortable])
    assert plan.chosen.step_time.step_seconds == fastest


def test_alternatives_are_ranked_and_each_has_a_reason(make_job: JobMaker) -> None:
    plan = make_plan(make_job("gpt2", gpus=4))
    families = [other.candidate.strategy.family for other in plan.alternatives]
    assert sorted(families) == ["zero-1", "zero-2", "zero-3"]
    times = [other.candidate.step_time.step_seconds for other in plan.alternatives]
    assert times == sorted(times)
    assert all("%" in other.reason for other in plan.alternatives)


def test_the_search_reports_its_size(make_job: JobMaker) -> None:
    plan = make_plan(make_job("gpt2", gpus=4, recipe={"global_batch_size": 16}))
    assert plan.search.strategies == 4 * 3 * 2
    assert 0 < plan.search.feasible <= plan.search.strategies


def test_a_wish_is_held(make_job: JobMaker) -> None:
    plan = make_plan(make_job("gpt2", gpus=4), {"zero_stage": 3, "micro_batch_size": 2})
    assert plan.chosen.strategy.family == "zero-3"
    assert plan.chosen.strategy.micro_batch_size == 2
    assert plan.alternatives == ()


def test_a_wish_nothing_meets_is_an_error(make_job: JobMaker) -> None:
    with pytest.raises(InvalidInputError, match="micro_batch_size=7"):
        make_plan(make_job("gpt2", gpus=4), {"micro_batch_size": 7})


TOO_LARGE: list[tuple[dict[str, Any], dict[str, object] | None, str]] = [
    ({"model": "meta-llama/Llama-2-70b-hf", "gpus": 8, "gpu": "4090"}, None, "GPUs would fit"),
    ({"model": LLAMA, "gpus": 1, "gpu": "a100"}, None, "pure bf16"),
    ({"model": LLAMA, "gpus": 8}, {"zero_stage": 0}, "without the pinned strategy"),
    (
        {"model": "meta-llama/Llama-3.1-8B", "gpus": 8, "recipe": {"sequence_length": 131072}},
        None,
        "sequences of",
    ),
]


@pytest.mark.parametrize(("case", "wish", "remedy"), TOO_LARGE)
def test_when_nothing_fits_it_says_by_how_much_and_what_would(
    make_job: JobMaker, case: dict[str, Any], wish: dict[str, object] | None, remedy: str
) -> None:
    arguments = dict(case)
    job = make_job(arguments.pop("model"), **arguments)
    with pytest.raises(NothingFitsError, match="too much") as caught:
        make_plan(job, wish)
    assert remedy in caught.value.hint


def test_several_nodes_are_planned_over_their_network(make_job: JobMaker) -> None:
    job = make_job(LLAMA, gpus=8, cluster={"nodes": 2, "inter_node": "ethernet-10g"})
    plan = make_plan(job)
    assert plan.chosen.strategy.data_parallel_size == 16
    assert plan.findings[0].code == "ONE004"
    assert "ethernet-10g" in plan.findings[0].message
