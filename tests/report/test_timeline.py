import pytest
from conftest import JobMaker

from planner.advice.plan import make_plan
from planner.domain.strategy import Layout, PipelineSchedule
from planner.parallel.schedule import StageSeconds, simulate
from planner.report.timeline import timeline, timeline_text
from planner.step_time.micro_batch import stage_seconds

FOUR = [StageSeconds(forward=1.0, backward=2.0)] * 4


def test_gpipe_runs_all_forwards_then_all_backwards_the_last_first() -> None:
    """The guide's picture of 4 stages and 4 chunks: F0 to F3, then B3 to B0."""
    text = timeline_text(simulate(PipelineSchedule("gpipe"), FOUR, 4), width=21)
    assert text.splitlines() == [
        "  stage 0  0123.........ddccbbaa",
        "  stage 1  .0123......ddccbbaa..",
        "  stage 2  ..0123...ddccbbaa....",
        "  stage 3  ...0123ddccbbaa......",
    ]


def test_a_layout_without_stages_or_with_too_many_has_no_picture(make_job: JobMaker) -> None:
    job = make_job("gpt2", gpus=4)
    assert timeline(job, Layout(data_parallel_replicate_size=4)) is None
    large = make_job("meta-llama/Meta-Llama-3.1-405B", gpus=8, cluster={"nodes": 8})
    deep = Layout(pipeline_parallel_size=64, gradient_accumulation_steps=64)
    assert timeline(large, deep) is None


def test_a_plans_picture_starts_with_the_first_micro_batch_on_the_first_stage(
    make_job: JobMaker,
) -> None:
    plan = make_plan(make_job("gpt2", gpus=4), {"pipeline_parallel_size": 4})
    found = timeline(plan.job, plan.chosen.strategy)
    assert found is not None
    first = found.spans[0]
    assert (first.stage, first.operation.micro_batch, first.start_seconds) == (0, 0, 0.0)
    assert 1 + max(span.operation.micro_batch for span in found.spans) <= 12


def test_stages_take_what_the_step_time_says(make_job: JobMaker) -> None:
    """The slowest stage's seconds are those of the ledger, and the last one has the head."""
    job = make_job("gpt2", gpus=4, recipe={"global_batch_size": 64})
    plan = make_plan(job, {"pipeline_parallel_size": 4, "tensor_parallel_size": 1})
    s = plan.chosen.strategy
    found = stage_seconds(plan.job, s)
    terms = {term.name: float(term.amount) for term in plan.chosen.step_time.terms}
    ledger = (terms["forward"] + terms["backward"]) / s.gradient_accumulation_steps
    assert max(stage.forward + stage.backward for stage in found) == pytest.approx(ledger)
    assert all(0 < stage.weight < stage.backward for stage in found)
