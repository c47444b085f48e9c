"""Predicts the runs of each source with one, and with three, runs of each of its machines known.

`make accuracy-anchored` writes `anchored.json`, from which docs/accuracy/anchored.md is made. Each source is judged
twice: with the records as they are, of which some were set on that source, and with constants that it had no part in.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fits.anchored_runs import TimedRun, anchored
from fits.step_time import frameworks_of, jobs_left_out, runs_of
from planner.catalog.published_runs import run_source, source_names

FIGURES = Path(__file__).with_name("anchored.json")
KNOWN = (1, 3)
WAYS = ("records", "left out")


def main() -> None:
    """Judge every source, or those that are named, and write each down."""
    for name in sys.argv[1:] or source_names():
        found = {**known(), name: figures(name)}
        ordered = {source: found[source] for source in source_names() if source in found}
        FIGURES.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def known() -> dict[str, Any]:
    """Return what was written down: of each source, by way, by the number of known runs."""
    found = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
    return dict(found)


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
        tables = [pair for name in frameworks_of(source) for pair in jobs_left_out(source, name)]
    for job, each in tables:
        for row, run in enumerate(each.runs):
            seconds = float(each.seconds[row])
            yield TimedRun(
                place=places[run.id], job=job, layout=each.layouts.at(row), seconds=seconds
            )


if __name__ == "__main__":
    main()
