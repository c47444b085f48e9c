"""How far off a kind of job is where no run of it has a part in what predicts it, and which runs a plan is like.

`make accuracy-kinds`. Every source is predicted with constants that were fitted on the others (`left_out.json`). A
kind's own doubt is the smallest that, beside all other causes, leaves four of five of its runs in their range, where
sources weigh the same whatever the number of their runs. A source is judged by what the others say of its kinds.
"""

import json
import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np

from fits import step_time as fits
from planner.catalog.kinds import FEWEST, Likeness
from planner.catalog.published_runs import source_names
from planner.catalog.records import data_root
from planner.core.term import Column
from planner.domain.job import Job
from planner.domain.kinds import Kind, kind_of
from planner.step_time.doubt import Cause
from planner.step_time.ledger import estimate_step_time

DOUBT, LIKENESS = "calibration/doubt.toml", "calibration/likeness.json"
COVERED = 0.8
"""Share of a kind's runs that shall be in their range."""
STEP, WIDEST = 0.01, 0.6
"""Of a doubt that is tried, and the widest: what is further off is wrong, not in doubt."""
FEWEST_OF_A_SOURCE = 3
"""Runs of a kind whose coverage says something of a source."""
NINE_IN_TEN = 0.9
ABOUT = """# How far off a kind of job may be beside what its seconds hang on: half-widths, as fractions of the step, by what stands in
# planner/domain/kinds.py. Written by `make accuracy-kinds`: the smallest that leaves four of five runs of the kind in their
# range where no run of the source has a part in the constants, each source weighing the same (tests/fits/kinds.py).
source = "the published runs of data/measurements/runs, each source predicted with what was fitted on the others (docs/accuracy/runs.md, In range of every source left out)"

[spreads]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One timed run beside what had no part in it predicts."""

    source: str
    kind: Kind
    gpu: str
    framework: str
    ratio: float
    """Measured over predicted."""
    width: float
    """Half-width of its range without the kind's doubt, as a fraction of the step."""
    slower: float
    """How much further the range reaches up."""

    def reaches(self, spread: float) -> tuple[float, float]:
        """Return the range with so much doubt of the kind, over what is predicted."""
        half = math.hypot(self.width, spread)
        return 1 / (1 + half), 1 + self.slower * half

    @property
    def least(self) -> float:
        """Return the least doubt of the kind with which it was measured inside its range."""
        half = (self.ratio - 1) / self.slower if self.ratio > 1 else 1 / self.ratio - 1
        return math.sqrt(max(0.0, half**2 - self.width**2))

    @property
    def error(self) -> float:
        """Return predicted over measured, less 1, without its sign."""
        return abs(1 / self.ratio - 1)


@cache
def shown() -> tuple[Shown, ...]:
    """Return every timed run of every source, predicted without that source."""
    pairs = [(source, name) for source in source_names() for name in fits.frameworks_of(source)]
    return tuple(
        run
        for source, framework in pairs
        for job, each in fits.jobs_left_out(source, framework)
        for run in _shown(source, job, each)
    )


def _shown(source: str, job: Job, each: fits.Runs) -> Iterable[Shown]:
    time, rows = estimate_step_time(job, each.layouts), len(each.runs)
    step: Column = np.broadcast_to(time.step_seconds, (rows,))
    others = [width for cause, width in time.doubts.items() if cause != Cause.KIND]
    width = np.broadcast_to(np.sqrt(sum(np.square(one) for one in others)), (rows,)) / step
    for row in range(rows):
        yield Shown(
            source=source,
            kind=kind_of(job, each.layouts.at(row)),
            gpu=job.cluster.gpu.name,
            framework=job.framework.name,
            ratio=float(each.seconds[row] / step[row]),
            width=float(width[row]),
            slower=job.framework.uncertainty.slower_factor,
        )


@cache
def spreads(without: str = "") -> Mapping[Kind, float]:
    """Return every kind's doubt, by all sources but one; a kind that none of them has takes the widest of the others."""
    by_kind: dict[Kind, dict[str, list[Shown]]] = {}
    for run in shown():
        if run.source != without:
            by_kind.setdefault(run.kind, {}).setdefault(run.source, []).append(run)
    found = {
        kind: _least(enough)
        for kind, by_source in by_kind.items()
        if (enough := [runs for runs in by_source.values() if len(runs) >= FEWEST_OF_A_SOURCE])
    }
    widest = max(found.values())
    return {kind: found.get(kind, widest) for kind in Kind}


def _least(by_source: Sequence[Sequence[Shown]]) -> float:
    needed = [np.array([run.least for run in runs]) for runs in by_source]
    for spread in np.arange(0.0, WIDEST, STEP):
        if np.mean([np.mean(each <= spread) for each in needed]) >= COVERED:
            return round(float(spread), 2)
    return WIDEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A source, judged by constants and doubts that it has no part in."""

    source: str
    runs: int
    in_range: float
    reach: float
    """How far the ranges reach up, in the median, as a fraction of what is predicted."""


@cache
def judged() -> tuple[Judged, ...]:
    """Return every source with what the others say of its kinds."""
    found = []
    for source in source_names():
        known, runs = spreads(source), [run for run in shown() if run.source == source]
        found.append(
            Judged(
                source=source,
                runs=len(runs),
                in_range=float(np.mean([run.least <= known[run.kind] for run in runs])),
                reach=float(np.median([run.reaches(known[run.kind])[1] - 1 for run in runs])),
            )
        )
    return tuple(found)


def likeness() -> list[dict[str, Any]]:
    """Return the groups of runs that are alike, from the narrowest to a kind as a whole, with how far off they are."""
    groups: dict[tuple[str, str, str], list[Shown]] = {}
    for run in shown():
        for gpu, framework in (
            (run.gpu, run.framework),
            (run.gpu, ""),
            ("", run.framework),
            ("", ""),
        ):
            groups.setdefault((run.kind.value, gpu, framework), []).append(run)
    return [asdict(_like(key, runs)) for key, runs in sorted(groups.items()) if len(runs) >= FEWEST]


def _like(key: tuple[str, str, str], runs: Sequence[Shown]) -> Likeness:
    kind, gpu, framework = key
    return Likeness(
        kind=kind,
        gpu=gpu,
        framework=framework,
        runs=len(runs),
        within=round(float(np.quantile([run.error for run in runs], NINE_IN_TEN)), 3),
        sources=tuple(source for source, _ in Counter(run.source for run in runs).most_common()),
    )


def as_doubt(found: Mapping[Kind, float]) -> str:
    """Return the record of spreads."""
    return ABOUT + "".join(f'"{kind.value}" = {spread}\n' for kind, spread in found.items())


def as_likeness(groups: Sequence[Mapping[str, Any]]) -> str:
    """Return the record of groups, one a line."""
    lines = ",\n".join(json.dumps(each) for each in groups)
    return f'{{"source": "data/measurements/runs, by make accuracy-kinds",\n"groups": [\n{lines}\n]}}\n'


def main() -> None:
    """Fit the spreads and write both records."""
    text = as_doubt(spreads())
    tomllib.loads(text)
    root = data_root()
    for path, body in ((DOUBT, text), (LIKENESS, as_likeness(likeness()))):
        (root / path).write_text(body, encoding="utf-8")  # type: ignore[attr-defined]
    for each in judged():
        print(f"{each.source:20} {each.runs:5} {each.in_range:4.0%} {each.reach:.2f}")


if __name__ == "__main__":
    main()
