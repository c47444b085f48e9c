"""Predictions of published runs as they are kept in `data/accuracy`, so that nobody waits for them.

To estimate every run of a source again takes seconds; a test does it, and holds the files to be what
it gives.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from planner.accuracy.predict import Accuracy, ChoiceQuality, Compared, Errors, Refusal
from planner.catalog.published_runs import Run, run_source
from planner.catalog.records import data_root
from planner.core.frozen import frozen


@frozen
class Nature:
    """What a run is like, by which those nearest to a plan are found; empty of one that is not estimated."""

    kind: str
    family: str
    """Of its layout."""
    parameters: int


@frozen
class Kept:
    """The figures of a source, and each of its runs beside its prediction."""

    figures: Accuracy
    natures: tuple[Nature, ...]
    results: tuple[Compared | Refusal, ...]
    """In the order of the runs, as natures are."""


@cache
def kept(name: str) -> Kept:
    """Return what is kept of a source.

    Raises:
        UnknownNameError: there is no such source.
    """
    source = run_source(name)
    path = data_root() / "accuracy" / f"{source.name}.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    pairs = zip(source.runs, record["runs"], strict=True)
    return Kept(
        figures=_figures({"source": source.name, **record["figures"]}),
        natures=_natures(record["natures"], record["nature_of_runs"]),
        results=tuple(_result(run, said) for run, said in pairs),
    )


def _figures(said: Mapping[str, Any]) -> Accuracy:
    time, memory, choice = said["time"], said["memory"], said["choice"]
    return Accuracy(
        **{
            **said,
            "time": Errors(**time) if time else None,
            "memory": Errors(**memory) if memory else None,
            "choice": ChoiceQuality(**choice) if choice else None,
        }
    )


def _natures(said: Sequence[tuple[str, str, int]], of_runs: Sequence[int]) -> tuple[Nature, ...]:
    """Return the nature of each run, of which many are of one."""
    natures = [
        Nature(kind=kind, family=family, parameters=parameters) for kind, family, parameters in said
    ]
    return tuple(natures[each] for each in of_runs)


def _result(run: Run, said: Sequence[float] | str) -> Compared | Refusal:
    if isinstance(said, str):
        return Refusal(run=run, reason=said)
    step_seconds, peak_bytes = said
    return Compared(run=run, step_seconds=step_seconds, peak_bytes=peak_bytes)
