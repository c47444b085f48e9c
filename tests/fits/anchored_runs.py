"""Published runs predicted once more, with one or three runs of their machine known.

A machine is the GPUs of one kind in a source, under one framework and release. Which of its runs are known is decided
by their place in the source alone: the middle one, or the middles of its thirds. Runs of the same layout of the same
job as a known one are left out of what is judged, as they were measured already.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from planner.calibrate.anchors import Fit, fit, on_factors
from planner.calibrate.runs import TimedLayouts
from planner.core.frozen import frozen
from planner.core.term import Column
from planner.domain.job import Job
from planner.domain.strategy import Layout, tabulate
from planner.machine.factors import narrowed
from planner.step_time.ledger import estimate_step_time


@frozen
class TimedRun:
    """One run of a source, and how long its step took."""

    place: int
    """In its source."""
    job: Job
    layout: Layout
    seconds: float


@frozen
class Anchored:
    """How well runs of one source are predicted with some runs of each machine known."""

    machines: int
    """Of which so many runs are known, and more are judged."""
    judged: int
    before: float
    """Median error of the judged runs, without sign, none known."""
    after: float
    """The same, with the known ones."""
    before_in_range: float
    after_in_range: float
    """Share of the judged runs that lie in the predicted range."""


def chosen(count: int, known: int) -> tuple[int, ...]:
    """Return the places of the known runs: the middles of as many equal parts."""
    return tuple(count * (2 * part + 1) // (2 * known) for part in range(known))


def anchored(runs: Iterable[TimedRun], known: int | TimedRun) -> Anchored | None:
    """Return how well the other runs of each machine are predicted; None where no machine has others.

    Args:
        runs: of one source.
        known: how many of each machine, or the only one, of whose machine the others are judged.
    """
    machines: dict[tuple[str, str, str], list[TimedRun]] = {}
    for run in sorted(runs, key=lambda each: each.place):
        framework = run.job.framework
        machine = (run.job.cluster.gpu.name, framework.name, framework.release)
        machines.setdefault(machine, []).append(run)
    if isinstance(known, TimedRun):
        found = [_judged(own, [known]) for own in machines.values() if known in own]
    else:
        taken = [(own, chosen(len(own), known)) for own in machines.values() if len(own) > known]
        found = [_judged(own, [own[place] for place in places]) for own, places in taken]
    found = [each for each in found if each.size]
    if not found:
        return None
    before, after, had, has = np.concatenate(found, axis=1)
    return Anchored(
        machines=len(found),
        judged=len(before),
        before=float(median(before)),
        after=float(median(after)),
        before_in_range=float(np.mean(had)),
        after_in_range=float(np.mean(has)),
    )


def _judged(runs: Sequence[TimedRun], taken: Sequence[TimedRun]) -> Column:
    """Return [error before, error after, in range before, in range after] of the runs that are not known."""
    found = fit(_tables(taken))
    rest = [run for run in runs if not any(_is_same(run, other) for other in taken)]
    columns: list[Column] = [np.zeros((4, 0))]
    columns += [_errors(table, found) for table in _tables(rest)]
    return np.concatenate(columns, axis=1)


def _errors(table: TimedLayouts, found: Fit) -> Column:
    known = _narrowed(on_factors(table.job, found.logarithms), found.range_share)
    measured, errors, inside = table.seconds, [], []
    for job in (table.job, known):
        step = estimate_step_time(job, table.layouts)
        errors.append(np.abs(step.step_seconds / measured - 1))
        inside.append((step.low_seconds <= measured) & (measured <= step.high_seconds))
    return np.array(np.broadcast_arrays(*errors, *inside), dtype=float)


def _narrowed(job: Job, share: float) -> Job:
    """Return a job of whose ranges' width a share is left."""
    curve = replace(job.cluster.gpu.gemm, spread=job.cluster.gpu.gemm.spread * share)
    cluster = replace(job.cluster, gpu=replace(job.cluster.gpu, gemm=curve))
    uncertainty = narrowed(job.framework.uncertainty, share)
    return replace(job, cluster=cluster, framework=replace(job.framework, uncertainty=uncertainty))


def _tables(runs: Sequence[TimedRun]) -> tuple[TimedLayouts, ...]:
    by_job: dict[int, list[int]] = {}
    for number, run in enumerate(runs):
        by_job.setdefault(id(run.job), []).append(number)
    return tuple(
        TimedLayouts(
            job=runs[numbers[0]].job,
            layouts=tabulate([runs[number].layout for number in numbers]),
            seconds=np.array([runs[number].seconds for number in numbers]),
            numbers=tuple(numbers),
        )
        for numbers in by_job.values()
    )


def _is_same(one: TimedRun, other: TimedRun) -> bool:
    return one is other or (one.job is other.job and one.layout == other.layout)
