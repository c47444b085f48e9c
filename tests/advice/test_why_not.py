import pytest
from conftest import JobMaker

from planner.advice.plan import make_plan
from planner.advice.why_not import read_pinned_fields, why_not, why_text
from planner.core.errors import InvalidInputError
from planner.domain.strategy import Offload, PipelineSchedule

LLAMA = "meta-llama/Llama-2-7b-hf"


@pytest.mark.parametrize(
    ("text", "pinned"),
    [
        ("tp=16", {"tensor_parallel_size": 16}),
        ("pp=2, zero=1", {"pipeline_parallel_size": 2, "zero_stage": 1}),
        ("zero=zero-3", {"zero_stage": 3}),
        ("tensor-parallel-size=2,sp=true", {"tensor_parallel_size": 2, "sequence_parallel": True}),
        ("schedule=1f1b", {"pipeline_schedule": "1f1b"}),
    ],
)
def test_pinned_fields_are_read_by_short_and_by_whole_names(
    text: str, pinned: dict[str, object]
) -> None:
    assert read_pinned_fields(text) == pinned


@pytest.mark.parametrize("text", ["tpp=2", "tp", "tp=", "=2", "", "$(rm)=1", "at=1"])
def test_what_is_no_wish_is_refused_with_the_names_there_are(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_pinned_fields(text)
    assert caught.value.hint


def test_a_wish_that_limits_forbid_is_answered_with_their_codes(make_job: JobMaker) -> None:
    """Nodes of 4 GPUs: the highest tensor parallel size is 4, as the guide says."""
    job = make_job("meta-llama/Llama-2-13b-hf", gpus=4, cluster={"nodes": 4}, gpu="h100")
    answer = why_not(make_plan(job, {"offload": Offload.NONE}), {"tensor_parallel_size": 8})
    assert [finding.code for finding in answer.findings] == ["LAY020"]
    assert answer.candidate is None
    assert "spans nodes of 4 GPUs" in why_text(answer, "tp=8")


def test_a_wish_that_can_be_is_compared_by_its_largest_terms(make_job: JobMaker) -> None:
    plan = make_plan(make_job(LLAMA, gpus=8))
    answer = why_not(plan, {"tensor_parallel_size": 8})
    assert answer.candidate is not None
    assert answer.candidate.strategy.tensor_parallel_size == 8
    slower = answer.candidate.step_time.step_seconds / plan.chosen.step_time.step_seconds - 1
    assert answer.comparison.startswith(f"{100 * slower:.0f} % slower than the choice")
    assert "tensor parallel exchange +" in answer.comparison


def test_a_wish_that_does_not_fit_says_by_how_much(make_job: JobMaker) -> None:
    plan = make_plan(make_job(LLAMA, gpus=8))
    whole = {f"{name}_parallel_size": 1 for name in ("tensor", "pipeline", "context")}
    answer = why_not(plan, {"zero_stage": 0, **whole})
    assert [finding.code for finding in answer.findings] == ["MEM001"]
    assert "none of" in why_text(answer, "zero=0")


def test_the_choice_itself_is_no_slower_than_the_choice(make_job: JobMaker) -> None:
    plan = make_plan(make_job("gpt2", gpus=4))
    answer = why_not(
        plan, {"zero_stage": 0, "micro_batch_size": plan.chosen.strategy.micro_batch_size}
    )
    assert answer.candidate is not None
    assert answer.candidate.step_time.step_seconds <= plan.chosen.step_time.step_seconds


def test_a_wish_that_no_layout_has_is_said_even_where_no_limit_forbids_it(
    make_job: JobMaker,
) -> None:
    plan = make_plan(make_job("gpt2", gpus=4))
    answer = why_not(plan, {"pipeline_schedule": PipelineSchedule.NAIVE})
    assert answer.candidate is None
    assert why_text(answer, "schedule=naive").endswith("no layout has all of it")
