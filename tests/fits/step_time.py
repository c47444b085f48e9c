"""Predicts each source of published runs with constants that were fitted on the other sources.

`make accuracy-cross`. What may be fitted, and on which runs, is declared in `FITS`; all else of the
framework records stays as it is. A source's loss is its median |log(predicted / measured)|; sources
weigh the same, whatever the number of their runs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np

from planner.accuracy.predict import Prediction, predict
from planner.catalog.published_runs import Run, run_source, source_names
from planner.core.units import MICRO, format_fraction
from planner.domain.job import Job
from planner.domain.strategy import Layout, Table, tabulate
from planner.report.values import columns_text
from planner.step_time.ledger import estimate_step_time

START = {
    "matmul.sustained_fraction": 0.8,
    "memory_bound.forward_passes": 1.2,
    "memory_bound.backward_passes": 2.4,
    "host.operation_seconds": 20 * MICRO,
    "host.micro_batch_seconds": 1000 * MICRO,
    "overlap.tensor_fraction": 0.1,
}
"""Judgement of a framework that nobody timed, where every fit begins."""
PULL = 0.005
"""What a constant costs that strays from `START` by a factor e: runs that say nothing of it keep it."""
MOST_JOBS = 40
"""Of a source in a fit, evenly chosen; all of its runs are predicted."""
_FIRST_STEP, _LAST_STEP, _WORTH_ANOTHER_ROUND = 0.15, 0.01, 2e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The constants of one framework record that are set on published runs."""

    constants: tuple[str, ...]
    """Of `Framework`: section and field."""
    sources: Mapping[str, Callable[[Run], bool]]
    """Which runs of which sources they may be set on."""
    relative: str = ""
    """The record whose constants stand in where none of those sources is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Timed runs of one job, as a table of layouts."""

    job: Job
    layouts: Table
    runs: tuple[Run, ...]
    seconds: Any
    """Measured, of each."""


def every(_: Run) -> bool:
    """Take all runs."""
    return True


def of_the_record(run: Run) -> bool:
    """Take the runs that are estimated as the framework's own record has it: a release has constants of its own."""
    return run.request["recipe"].get("framework_version") is None


def without_pipeline(run: Run) -> bool:
    """Take the runs without a pipeline whose tensor parallelism stays on a node."""
    s = run.request["strategy"]
    is_within = s["tensor_parallel_size"] <= run.request["cluster"]["gpus_per_node"]
    return bool(is_within and s["pipeline_parallel_size"] == 1)


FITS = {
    "torch": Fit(
        constants=(
            "matmul.sustained_fraction",
            "memory_bound.forward_passes",
            "memory_bound.backward_passes",
        ),
        sources={"mosaic": of_the_record, "torchtitan": every},
        relative="megatron",
    ),
    "megatron": Fit(
        constants=tuple(START),
        sources={"bloom": every, "papers": every, "vtrain_multi": every, "vtrain_single": every},
        relative="torch",
    ),
    "nanotron": Fit(
        constants=tuple(START), sources={"nanotron": without_pipeline}, relative="megatron"
    ),
}
"""By framework record."""
RECORDS = dict.fromkeys(("accelerate", "composer", "deepspeed", "torchtitan"), "torch")
"""Frameworks that take those constants from another's record."""
KERNELS, RELATIVE_KERNEL = {"mosaic": "flash-1", "nemo": "cudnn"}, "flash-2"
"""Attention kernels whose share of the peak was set on a source, and what they resemble."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Fitted constants of every record."""

    by_record: Mapping[str, Mapping[str, float]]
    unknown_kernel: str = ""
    """The attention kernel that is taken to do as its relative does."""

    def of(self, job: Job) -> Job:
        """Return the job with those constants; a release keeps its own."""
        if job.framework.release:
            return job
        values: dict[str, Any] = dict(self.by_record[_record(job.framework.name)])
        if job.framework.attention.kernel == self.unknown_kernel:
            values["attention.kernel"] = RELATIVE_KERNEL
        return with_values(job, values)


def main() -> None:
    """Print the table, and the constants that are fitted on all sources."""
    head = ("source", "framework", "left out: fitted on", "all", "left out", "in range")
    found = [
        (source, framework)
        for source in source_names()
        for framework in sorted({each.job.framework.name for each in runs_of(source)})
    ]
    print(columns_text([head, *((*pair, *_cells(*pair)) for pair in found)]))
    for record in FITS:
        constants = {name: float(f"{value:.3g}") for name, value in fitted_on(record, "").items()}
        print(f"{record}, fitted on all: {constants}")


def _cells(source: str, framework: str) -> tuple[str, ...]:
    how = FITS[_record(framework)]
    used = [name for name in how.sources if name != source]
    error, _ = errors(source, framework, fitted_without(""))
    left_out, covered = errors(source, framework, fitted_without(source))
    shares = (format_fraction(share) for share in (error, left_out, covered))
    return (", ".join(used) or f"as {how.relative}", *shares)


@cache
def fitted_without(source: str) -> Constants:
    """Return the constants that are fitted on all sources but that one; "" for all of them."""
    by_record = {record: fitted_on(record, source) for record in FITS}
    return Constants(by_record=by_record, unknown_kernel=KERNELS.get(source, ""))


@cache
def fitted_on(record: str, left_out: str) -> Mapping[str, float]:
    how = FITS[record]
    if left_out and left_out not in how.sources:
        return fitted_on(record, "")
    used = [name for name in how.sources if name != left_out]
    if not used:
        return fitted_on(how.relative, left_out)
    return fit([_chosen(record, name) for name in used], how.constants)


def fit(by_source: Sequence[Sequence[Runs]], constants: Sequence[str]) -> Mapping[str, float]:
    """Return the constants that predict those runs best, by a pattern search over logarithms."""
    best = {name: START[name] for name in constants}
    loss, step = _loss(by_source, best), _FIRST_STEP
    while step > _LAST_STEP:
        before = loss
        for name, factor in product(constants, (1 + step, 1 / (1 + step))):
            move = best | {name: best[name] * factor}
            moved = _loss(by_source, move)
            if moved < loss:
                best, loss = move, moved
        if before - loss < _WORTH_ANOTHER_ROUND:
            step /= 2
    return best


def _loss(by_source: Sequence[Sequence[Runs]], constants: Mapping[str, float]) -> float:
    medians = []
    for group in by_source:
        ratios = [
            estimate_step_time(with_values(each.job, constants), each.layouts).step_seconds
            / each.seconds
            for each in group
        ]
        medians.append(float(np.median(np.abs(np.log(np.concatenate(ratios))))))
    strayed = sum(math.log(value / START[name]) ** 2 for name, value in constants.items())
    return fmean(medians) + PULL * strayed


def errors(source: str, framework: str, constants: Constants) -> tuple[float, float]:
    """Return the median error of a framework's runs in a source, and the share of them in range."""
    ratios, inside = [], []
    for each in runs_of(source):
        if each.job.framework.name == framework:
            time = estimate_step_time(constants.of(each.job), each.layouts)
            ratios.append(time.step_seconds / each.seconds)
            inside.append((time.low_seconds <= each.seconds) & (each.seconds <= time.high_seconds))
    median = np.median(np.abs(np.concatenate(ratios) - 1))
    return float(median), float(np.mean(np.concatenate(inside)))


def _record(framework: str) -> str:
    return RECORDS.get(framework, framework)


def with_values(job: Job, values: Mapping[str, Any]) -> Job:
    framework = job.framework
    for name, value in values.items():
        section, _, field = name.partition(".")
        changed = replace(getattr(framework, section), **{field: value})
        framework = replace(framework, **{section: changed})
    return replace(job, framework=framework)


@cache
def runs_of(source: str) -> tuple[Runs, ...]:
    """Return the timed runs of a source by job."""
    by_job: dict[int, list[Prediction]] = {}
    for each in predict(run_source(source)):
        if isinstance(each, Prediction) and each.run.step_seconds:
            by_job.setdefault(id(each.job), []).append(each)
    return tuple(
        _runs(group[0].job, [(each.strategy, each.run) for each in group])
        for group in by_job.values()
    )


def _runs(job: Job, found: Sequence[tuple[Layout, Run]]) -> Runs:
    runs = tuple(run for _, run in found)
    seconds = np.array([run.step_seconds for run in runs])
    return Runs(job=job, layouts=tabulate([s for s, _ in found]), runs=runs, seconds=seconds)


def _chosen(record: str, source: str) -> Sequence[Runs]:
    """Return the runs of a source that a record's constants are fitted on."""
    is_taken, kept = FITS[record].sources[source], []
    for each in runs_of(source):
        found = [(each.layouts.at(i), run) for i, run in enumerate(each.runs) if is_taken(run)]
        if found and _record(each.job.framework.name) == record:
            kept.append(_runs(each.job, found))
    return kept[:: math.ceil(len(kept) / MOST_JOBS)]


if __name__ == "__main__":
    main()
