"""Seconds of layouts that have every term, kind by kind, beside what they were."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from known_ledgers import check, layouts

from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.step_time.ledger import estimate_step_time
from planner.step_time.micro_batch import part_seconds, stage_seconds


def figures(job: Job, s: Layout) -> Iterator[tuple[str, list[float]]]:
    for part in job.model.parts[:3] + job.model.parts[-1:]:
        spent = part_seconds(job, s, part).seconds_by_kind
        yield f"{part.name} {part.count}", np.ravel(spent).tolist()
    for stage in (stage_seconds(job, s)[0], stage_seconds(job, s)[-1]):
        yield f"stage {len(stage_seconds(job, s))}", [stage.forward, stage.backward, stage.weight]
    time = estimate_step_time(job, s)
    for term in time.terms:
        yield term.name, [float(term.amount)]
    ends = time.low_seconds, time.step_seconds, time.high_seconds
    rates = time.tokens_per_second_per_gpu, time.model_flops_utilization
    yield "step", [float(each) for each in (*ends, *rates, *time.doubts.values())]


def test_every_kind_of_second_is_what_it_was(request: pytest.FixtureRequest) -> None:
    found = ((name, dict(figures(job, s))) for name, job, s in layouts())
    update = bool(request.config.getoption("--update-golden"))
    check(Path(__file__).with_name("known_seconds.json"), found, update=update)
