"""The range of a step: what widens it, and that causes add as squares."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import JobMaker

from planner.catalog.kinds import spreads_of_kinds
from planner.domain.job import Job
from planner.domain.kinds import Kind
from planner.domain.strategy import Layout
from planner.step_time import doubt
from planner.step_time.doubt import Cause
from planner.step_time.ledger import StepTime, estimate_step_time

RECIPE = {"framework": "megatron", "global_batch_size": 64, "sequence_length": 1024}


def timed(job: Job, **sizes: Any) -> StepTime:
    return estimate_step_time(job, Layout(micro_batch_size=4, **sizes))


def reach(time: StepTime) -> float:
    return float(time.high_seconds / time.low_seconds)


def with_host(job: Job, operation_seconds: float) -> Job:
    host = replace(job.framework.host, operation_seconds=operation_seconds)
    return replace(job, framework=replace(job.framework, host=host))


def test_causes_add_as_squares(make_job: JobMaker) -> None:
    job = make_job(gpus=1, recipe=RECIPE)
    time = timed(job, gradient_accumulation_steps=16)
    together = math.sqrt(sum(float(width) ** 2 for width in time.doubts.values()))
    step = float(time.step_seconds)
    assert float(time.high_seconds) == pytest.approx(
        step + job.framework.uncertainty.slower_factor * together
    )
    assert float(time.low_seconds) == pytest.approx(step / (1 + together / step))
    assert together < sum(map(float, time.doubts.values()))


def test_a_gpu_without_a_curve_widens_the_range(make_job: JobMaker) -> None:
    own, borrowed, none = (
        reach(timed(make_job(gpus=1, cluster={"gpu": gpu}, recipe=RECIPE)))
        for gpu in ("h100", "h800", "mi300x")
    )
    assert 1.1 < own < borrowed < none


def test_an_unknown_release_and_an_untimed_framework_widen_it(make_job: JobMaker) -> None:
    def spread(**recipe: Any) -> float:
        job = make_job(gpus=1, recipe={**RECIPE, **recipe})
        return float(np.asarray(doubt.spreads(job, Layout())[Cause.RELEASE]))

    named = spread(framework_version="2022-03")
    assert 0 < named < spread() < spread(framework="deepspeed") == spread(framework="torch")


def test_a_kind_that_others_predict_badly_widens_the_range(make_job: JobMaker) -> None:
    """Of the whole step; known runs of the own machine say more than those of the kind."""
    job = make_job("google-bert/bert-base-uncased", gpus=1)
    time, spread = timed(job, gradient_accumulation_steps=4), spreads_of_kinds()[Kind.ENCODERS]
    assert spread > 0
    assert float(time.doubts[Cause.KIND]) == pytest.approx(spread * float(time.step_seconds))
    uncertainty = replace(job.framework.uncertainty, kind=0.0)
    own = replace(job, framework=replace(job.framework, uncertainty=uncertainty))
    assert float(timed(own, gradient_accumulation_steps=4).doubts[Cause.KIND]) == 0


def test_a_host_that_the_gpu_is_behind_costs_nothing(make_job: JobMaker) -> None:
    job = make_job(gpus=1, recipe=RECIPE)
    quick, slow = (timed(with_host(job, seconds)) for seconds in (1e-9, 1e-3))
    idle = job.framework.host.micro_batch_seconds
    assert float(quick.doubts[Cause.HOST]) == pytest.approx(idle, rel=1e-3)
    assert float(slow.doubts[Cause.HOST]) > 0.8 * float(slow.step_seconds)


def test_adapters_are_less_sure(make_job: JobMaker) -> None:
    full, lora = (
        doubt.spreads(
            make_job(gpus=1, recipe={**RECIPE, "framework": "torch", "method": method}), Layout()
        )
        for method in ("full", "lora")
    )
    assert full[Cause.ADAPTERS] == 0 < lora[Cause.ADAPTERS]
