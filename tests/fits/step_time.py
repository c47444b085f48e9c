"""Predicts each source of published runs with constants that were fitted on the other sources.

`make accuracy-cross`. What may be fitted, and on which runs, is declared in `FITS`; all else of the framework records
stays as it is. What a release was set on its own runs is fitted on one half of their layouts for the other (`RELEASES`);
so, beside, is a record of which no other source runs the same software (`OWN`). The constants go to `left_out.json`,
from which the tests predict every source again. A source's loss is its median |log(predicted / measured)|; sources
weigh the same, whatever the number of their runs.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from fits.pattern_search import search
from planner.accuracy.predict import Prediction, predict
from planner.catalog import records
from planner.catalog.published_runs import Run, run_source, source_names
from planner.core.term import Column
from planner.core.units import MICRO
from planner.domain.job import Job
from planner.domain.strategy import Layout, Table, tabulate
from planner.step_time.ledger import estimate_step_time

LEFT_OUT = Path(__file__).with_name("left_out.json")
START = {
    "matmul.sustained_fraction": 0.8,
    "memory_bound.forward_passes": 1.2,
    "memory_bound.backward_passes": 2.4,
    "host.operation_seconds": 20 * MICRO,
    "host.micro_batch_seconds": 1000 * MICRO,
    "overlap.tensor_fraction": 0.1,
    "host.layer_seconds": 5000 * MICRO,
    "host.sharpness": 4.0,
    "host.exchange_seconds_per_rank": 100 * MICRO,
    "host.crossing_seconds_per_rank": 100 * MICRO,
}
"""Judgement of a framework that nobody timed, to which every fit is pulled."""
_OF_ALL = (
    "matmul.sustained_fraction",
    "memory_bound.forward_passes",
    "memory_bound.backward_passes",
    "host.operation_seconds",
    "host.micro_batch_seconds",
    "overlap.tensor_fraction",
)
_OF_KERNELS = (
    "matmul.sustained_fraction",
    "memory_bound.forward_passes",
    "memory_bound.backward_passes",
)
COARSE = {
    "matmul.sustained_fraction": (0.72, 0.8, 0.88),
    "host.operation_seconds": (20 * MICRO, 40 * MICRO),
    "host.sharpness": (3.0, 6.0),
    "host.exchange_seconds_per_rank": (100 * MICRO, 300 * MICRO, 1000 * MICRO),
    "host.crossing_seconds_per_rank": (30 * MICRO, 100 * MICRO),
}
"""Of these, all against all, a search begins at the best: it is local, and some of them stand in for each other."""
PULL = 0.005
"""What a constant costs that strays from `START` by a factor e: runs that say nothing of it keep it."""
MOST_JOBS = 40
"""Of a source in a fit, evenly chosen; all of its runs are predicted."""


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
    """Timed runs of one job, as a table of layouts, and the seconds that each was measured at."""

    job: Job
    layouts: Table
    runs: tuple[Run, ...]
    seconds: Any


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


RELEASES = {
    ("bloom_176b", "Megatron-DeepSpeed 2022"): ("matmul.sustained_fraction", "host.layer_seconds"),
    ("internevo", "InternEvo"): ("matmul.sustained_fraction",),
}
"""Constants of a release that were set on all runs of a source, by both. Composer's of early 2023 were set on every other
of its own, and stay."""
_OF_FORK = (*_OF_ALL, "host.sharpness")
_WAITS = ("host.exchange_seconds_per_rank", "host.crossing_seconds_per_rank")
OWN = {
    ("nanotron",): (*_OF_FORK, *_WAITS),
    ("vtrain_multi", "vtrain_single"): _OF_FORK,
}
"""The same of software that no other source ran, nanotron and vTrain's fork of Megatron, by the sources that ran it: what
its own record says is judged by halves beside being left out."""
FITS = {
    "torchtitan": Fit(
        constants=_OF_KERNELS,
        sources={"mosaic": of_the_record, "torchtitan": every},
        relative="megatron",
    ),
    "megatron": Fit(
        constants=_OF_ALL,
        sources={"bloom": every, "papers": every, "vtrain_multi": every, "vtrain_single": every},
        relative="torchtitan",
    ),
    "nanotron": Fit(constants=_OF_ALL, sources={"nanotron": without_pipeline}, relative="megatron"),
}
"""By framework record."""
RECORDS = {"composer": "torchtitan"}
"""Frameworks that take those constants from another's record."""
PROFILED = ("accelerate", "deepspeed", "torch")
"""Frameworks whose constants were set on profiles of kernels, and on no run's time: they stay."""
THE_OTHER_HALF = "its other half"
KERNELS, RELATIVE_KERNEL = {"mosaic": "flash-1", "nemo": "cudnn"}, "flash-2"
"""Attention kernels whose share of the peak was set on a source, and what they resemble."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Fitted constants of every record."""

    by_record: Mapping[str, Mapping[str, float]]
    left_out: str = ""
    """The source that had no part in them."""

    def of(self, job: Job) -> Job:
        """Return the job with those constants; a release, and what was profiled, keeps its own.

        A framework whose own runs were left out is one that nobody timed, and an attention kernel that was set on them
        does as its relative does.
        """
        if job.framework.release or job.framework.name in PROFILED:
            return job
        values: dict[str, Any] = dict(self.by_record[_record(job.framework.name)])
        if job.framework.attention.kernel == KERNELS.get(self.left_out):
            values["attention.kernel"] = RELATIVE_KERNEL
        if self.left_out and not _is_timed(job.framework.name, self.left_out):
            untimed = records.framework("torch").uncertainty.unknown_release
            values["uncertainty.unknown_release"] = untimed
        return with_values(job, values)


@cache
def _is_timed(framework: str, left_out: str) -> bool:
    """Return whether a source that is left in has runs of the framework."""
    sources = [name for name in FITS[_record(framework)].sources if name != left_out]
    return any(each.job.framework.name == framework for name in sources for each in runs_of(name))


def main() -> None:
    """Fit all there is to fit, and write it down."""
    fitted = {name: fitted_without(name).by_record for name in ("", *source_names())}
    kept = {name: found for name, found in fitted.items() if not name or found != fitted[""]}
    halves = {
        " / ".join(key): [fitted_on_half(*key, half) for half in (0, 1)] for key in RELEASES
    } | {" / ".join(key): [fitted_on_own_half(key, half) for half in (0, 1)] for key in OWN}
    written = {"left_out": kept, "halves": halves}
    LEFT_OUT.write_text(json.dumps(written, indent=1, default=dict) + "\n", encoding="utf-8")


@cache
def known(source: str) -> Constants:
    """Return the constants that were written down of a source left out."""
    kept = json.loads(LEFT_OUT.read_text(encoding="utf-8"))["left_out"]
    return Constants(by_record=kept.get(source, kept[""]), left_out=source)


@cache
def known_of_half(*key: str) -> Sequence[Mapping[str, float]]:
    """Return what was written down of each half of a release's runs, or of sources that share their software."""
    kept = json.loads(LEFT_OUT.read_text(encoding="utf-8"))["halves"]
    return list(kept[" / ".join(key)])


@cache
def fitted_without(source: str) -> Constants:
    """Return the constants that are fitted on all sources but that one; "" for all of them."""
    by_record = {record: fitted_on(record, source) for record in FITS}
    return Constants(by_record=by_record, left_out=source)


def fitted_on_half(source: str, release: str, half: int) -> Mapping[str, float]:
    """Return a release's constants fitted on one half of its layouts, by the mean: its runs are few."""
    found = _thinned(halves(source, release)[half])
    return fit([found], RELEASES[source, release], pull=0.0, middle=np.mean)


def fitted_on_own_half(sources: tuple[str, ...], half: int) -> Mapping[str, float]:
    """Return the constants of software that no other source ran, fitted on one half of each source's layouts."""
    return fit([_thinned(halves(source, "")[half]) for source in sources], OWN[sources])


def _thinned(found: Sequence[Runs]) -> Sequence[Runs]:
    return found[:: math.ceil(len(found) / MOST_JOBS)]


def halves(source: str, release: str) -> tuple[Sequence[Runs], Sequence[Runs]]:
    """Return a source's runs of a release, or of none, by every other of their layouts, counted through all jobs."""
    found: tuple[list[Runs], list[Runs]] = ([], [])
    seen: dict[tuple[int, Layout], int] = {}
    for number, each in enumerate(runs_of(source)):
        if each.job.framework.release != release:
            continue
        layouts = [each.layouts.at(i) for i in range(len(each.runs))]
        parts = [seen.setdefault((number, layout), len(seen)) % 2 for layout in layouts]
        for half in (0, 1):
            rows = [(layouts[i], each.runs[i]) for i, part in enumerate(parts) if part == half]
            if rows:
                found[half].append(_runs(each.job, rows))
    return found


@cache
def fitted_on(record: str, left_out: str) -> Mapping[str, float]:
    how = FITS[record]
    if left_out and left_out not in how.sources:
        return fitted_on(record, "")
    used = [name for name in how.sources if name != left_out]
    if not used:
        return fitted_on(how.relative, left_out)
    earlier = known(left_out).by_record.get(record)
    return fit([_chosen(record, name) for name in used], how.constants, earlier=earlier)


def fit(
    by_source: Sequence[Sequence[Runs]],
    constants: Sequence[str],
    *,
    pull: float = PULL,
    middle: Callable[[Column], Any] = np.median,
    earlier: Mapping[str, float] | None = None,
) -> Mapping[str, float]:
    """Return the constants that predict those runs best."""
    coarse = {name: COARSE.get(name, (START[name],)) for name in constants}
    return search(lambda tried: _loss(by_source, tried, pull, middle), coarse, earlier)


def _loss(
    by_source: Sequence[Sequence[Runs]],
    constants: Mapping[str, float],
    pull: float,
    middle: Callable[[Column], Any],
) -> float:
    medians = []
    for group in by_source:
        ratios = [
            estimate_step_time(with_values(each.job, constants), each.layouts).step_seconds
            / each.seconds
            for each in group
        ]
        medians.append(float(middle(np.abs(np.log(np.concatenate(ratios))))))
    strayed = sum(math.log(value / START[name]) ** 2 for name, value in constants.items())
    return fmean(medians) + pull * strayed


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Runs of one source and framework, predicted from the others."""

    measured: Column
    """Over what was predicted."""
    low: Column
    """The range, over what was predicted."""
    high: Column


def left_out(source: str, framework: str) -> LeftOut:
    """Return what the constants that were written down say of a source that had no part in them."""
    return _compared(jobs_left_out(source, framework))


def by_halves(source: str) -> LeftOut:
    """Return what each half of the layouts says of the other, for a source with software of its own."""
    return _compared(jobs_by_halves(source, "", own_of(source)))


def own_of(source: str) -> tuple[str, ...]:
    """Return the sources that ran the same software, which no other did; none of most."""
    return next((sources for sources in OWN if source in sources), ())


def _compared(found: Iterator[tuple[Job, Runs]]) -> LeftOut:
    shares = []
    for job, each in found:
        time = estimate_step_time(job, each.layouts)
        spread = (each.seconds, time.low_seconds, time.high_seconds)
        shares.append([np.asarray(seconds) / time.step_seconds for seconds in spread])
    measured, low, high = (np.concatenate(column) for column in zip(*shares, strict=True))
    return LeftOut(measured=measured, low=low, high=high)


def jobs_left_out(source: str, framework: str) -> Iterator[tuple[Job, Runs]]:
    """Yield runs with the job that predicts them: releases from the other half, the rest from the other sources."""
    for each in runs_of(source):
        is_own = (source, each.job.framework.release) in RELEASES
        if each.job.framework.name == framework and not is_own:
            yield known(source).of(each.job), each
    for of, release in RELEASES:
        if of == source:
            yield from jobs_by_halves(source, release, (source, release))


def jobs_by_halves(source: str, release: str, key: tuple[str, ...]) -> Iterator[tuple[Job, Runs]]:
    """Yield each half of a source's runs of a release, or of none, with the job that the other half predicts them by."""
    for half, constants in zip(halves(source, release), reversed(known_of_half(*key)), strict=True):
        yield from ((with_values(each.job, constants), each) for each in half)


def frameworks_of(source: str) -> Sequence[str]:
    """Return the frameworks of a source's timed runs."""
    return sorted({each.job.framework.name for each in runs_of(source)})


def fitted_sources(source: str, framework: str) -> str:
    """Return, in words, what predicts a framework's runs of a source that is left out."""
    if framework in PROFILED:
        return "kernels of one H100"
    if any(of == source for of, _ in RELEASES):
        return THE_OTHER_HALF
    how = FITS[_record(framework)]
    used = [name for name in how.sources if name != source]
    return ", ".join(used) or f"as {how.relative}"


def _record(framework: str) -> str:
    return RECORDS.get(framework, framework)


def with_values(job: Job, values: Mapping[str, Any]) -> Job:
    """Return the job with constants of its record, of whose passes over memory compiling leaves its share."""
    framework = job.framework
    left = framework.compile.passes_fraction if job.recipe.compile else 1.0
    for name, value in values.items():
        section, _, field = name.partition(".")
        share = left if name in _OF_KERNELS[1:] else 1
        changed = replace(getattr(framework, section), **{field: share * value})
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
    runs, seconds = tuple(run for _, run in found), np.array([r.step_seconds for _, r in found])
    return Runs(job=job, layouts=tabulate([s for s, _ in found]), runs=runs, seconds=seconds)


def _chosen(record: str, source: str) -> Sequence[Runs]:
    """Return the runs of a source that a record's constants are fitted on."""
    is_taken, kept = FITS[record].sources[source], []
    for each in runs_of(source):
        found = [(each.layouts.at(i), run) for i, run in enumerate(each.runs) if is_taken(run)]
        if found and _record(each.job.framework.name) == record:
            kept.append(_runs(each.job, found))
    return _thinned(kept)


if __name__ == "__main__":
    main()
