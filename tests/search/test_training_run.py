import math
from dataclasses import replace

import pytest
from conftest import JobMaker

from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.report.layout_words import run_figure
from planner.search.candidate import estimate
from planner.search.training_run import TrainingRun, start_up, training_run

DDP = Layout(data_parallel_replicate_size=8, micro_batch_size=8)


def of(job: Job, tokens: int) -> TrainingRun | None:
    longer = replace(job, recipe=replace(job.recipe, training_tokens=tokens))
    return training_run(longer, estimate(longer, DDP).step_time)


@pytest.fixture
def job(make_job: JobMaker) -> Job:
    recipe = {"global_batch_size": 64, "sequence_length": 1024}
    return make_job(gpus=8, gpu=None, cluster={"instance": "p4d.24xlarge"}, recipe=recipe)


def test_tokens_make_whole_steps(job: Job) -> None:
    exact, one_more = of(job, 100 * 65_536), of(job, 100 * 65_536 + 1)
    assert exact is not None
    assert one_more is not None
    assert (exact.steps, one_more.steps) == (100, 101)


def test_padding_is_computed_and_is_none_of_the_run(make_job: JobMaker) -> None:
    recipe = {"global_batch_size": 64, "sequence_length": 1024, "training_samples": 6400}
    full = make_job(gpus=8, recipe=recipe)
    padded = make_job(gpus=8, recipe=recipe | {"packed": False, "padding_share": 0.25})
    before, after = (estimate(job, DDP).step_time for job in (full, padded))
    assert padded.recipe.training_tokens == 0.75 * full.recipe.training_tokens
    assert after.step_seconds == before.step_seconds
    assert after.model_flops_utilization == before.model_flops_utilization
    assert after.tokens_per_second_per_gpu == pytest.approx(0.75 * before.tokens_per_second_per_gpu)
    runs = training_run(full, before), training_run(padded, after)
    assert [run and run.steps for run in runs] == [100, 100]
    tokens = replace(padded, recipe=replace(padded.recipe, training_tokens=100 * 65_536))
    run = training_run(tokens, after)
    assert run is not None
    assert run.steps == math.ceil(100 / 0.75)


def test_hours_and_price_follow_from_the_step(job: Job) -> None:
    run = of(job, 10**9)
    assert run is not None
    step = estimate(job, DDP).step_time
    assert run.seconds == pytest.approx(run.start_up_seconds + run.steps * float(step.step_seconds))
    assert run.low_seconds < run.seconds < run.high_seconds
    doubt = float(start_up(job).spread) * run.start_up_seconds
    assert run.low_seconds + doubt - run.start_up_seconds == pytest.approx(
        run.steps * float(step.low_seconds)
    )
    assert run.high_seconds - doubt - run.start_up_seconds == pytest.approx(
        run.steps * float(step.high_seconds)
    )
    assert run.gpu_hours == pytest.approx(8 * run.seconds / 3600)
    assert run.usd == pytest.approx(21.9576 * run.seconds / 3600)
    assert run.price_date == "2026-01-21"


def test_an_instance_has_no_price_with_gpus_that_are_not_its_own(make_job: JobMaker) -> None:
    recipe = {"global_batch_size": 64, "sequence_length": 1024}
    for gpu, is_priced in ((None, True), ("h100", True), ("a100", False), ("a100:4,h100:4", False)):
        job = make_job(gpus=8, gpu=gpu, cluster={"instance": "p5.48xlarge"}, recipe=recipe)
        run = of(job, 10**9)
        assert run is not None
        assert (bool(run.usd), bool(run.price_date)) == (is_priced, is_priced), gpu


def test_part_of_an_instance_costs_the_whole(make_job: JobMaker) -> None:
    recipe = {"global_batch_size": 64, "sequence_length": 1024, "training_tokens": 10**9}
    part = make_job(gpus=4, gpu=None, cluster={"instance": "p4d.24xlarge"}, recipe=recipe)
    s = Layout(data_parallel_replicate_size=4, micro_batch_size=16)
    run = training_run(part, estimate(part, s).step_time)
    assert run is not None
    assert run.usd == pytest.approx(21.9576 * run.seconds / 3600)
    assert run.gpu_hours == pytest.approx(4 * run.seconds / 3600)


def test_without_tokens_there_is_no_run_and_without_a_price_no_cost(make_job: JobMaker) -> None:
    job = make_job(gpus=8, recipe={"global_batch_size": 64})
    assert of(job, 0) is None
    run = of(job, 10**9)
    assert run is not None
    assert (run.usd, run.price_date) == (0.0, "")


def test_start_up_is_a_process_joining_and_loading(make_job: JobMaker) -> None:
    """20 s; 2 s and 0.03 a GPU where there are several; 4 B a parameter at 1 GB/s."""
    one = make_job(gpus=1, recipe={"precision": "fp32"})
    assert float(start_up(one).amount) == pytest.approx(20 + 0.124439808 * 4, rel=1e-6)
    eight = make_job(gpus=8, recipe={"precision": "fp32"})
    assert float(start_up(eight).amount - start_up(one).amount) == pytest.approx(2 + 0.03 * 8)
    assert "to join the GPUs" in start_up(eight).how


def test_short_runs_say_what_passes_before_the_first_step(job: Job) -> None:
    candidate = estimate(job, DDP)
    short, long = (
        run_figure(replace(job, recipe=replace(job.recipe, training_tokens=tokens)), candidate)
        for tokens in (65_536, 10**12)
    )
    assert short is not None
    assert long is not None
    assert "before the first step" in short.rest
    assert "before the first step" not in long.rest
