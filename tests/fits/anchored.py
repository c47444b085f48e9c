"""Predicts the runs of each source with one, and with three, runs of each of its machines known.

`make accuracy-anchored` writes `anchored.json`, from which docs/accuracy/anchored.md is made. Each source is judged
twice: with the records as they are, of which some were set on that source, and with constants that it had no part in.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fits.step_time import _jobs_left_out, frameworks_of, runs_of
from planner.accuracy.anchored import TimedRun, anchored
from planner.catalog.published_runs import run_source, source_names

FIGURES = Path(__file__).with_name("anchored.json")
KNOWN = (1, 3)
WAYS = ("records", "left out")


def main() -> None:
    """Judge every source, and write it down."""
    found = {name: figures(name) for name in source_names()}
    FIGURES.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def figures(source: str, ways: Sequence[str] = WAYS) -> Mapping[str, Mapping[str, Any]]:
    """Return the figures of one source: by way, by the number of known runs."""
    found = {}
    for way in ways:
        runs = list(timed_runs(source, way))
        judged = {str(known): anchored(runs, known) for known in KNOWN}
        found[way] = {known: asdict(each) for known, each in judged.items() if each}
    return found


def timed_runs(source: str, way: str) -> Iterator[TimedRun]:
    """Yield the timed runs of a source, each with the job that predicts it."""
    places = {run.id: place for place, run in enumerate(run_source(source).runs)}
    if way == "records":
        tables = [(each.job, each) for each in runs_of(source)]
    else:
        tables = [pair for name in frameworks_of(source) for pair in _jobs_left_out(source, name)]
    for job, each in tables:
        for row, run in enumerate(each.runs):
            seconds = float(each.seconds[row])
            yield TimedRun(
                place=places[run.id], job=job, layout=each.layouts.at(row), seconds=seconds
            )


if __name__ == "__main__":
    main()
