"""What published runs say of a kind of job: how far off it is, and which runs are nearest."""

import json
from collections.abc import Mapping
from functools import cache

from planner.catalog.records import data_root, read
from planner.core.frozen import frozen
from planner.domain.kinds import Kind

FEWEST = 5
"""Runs that say how far off nine in ten are."""


@frozen
class Likeness:
    """Published runs that a plan is like, each predicted by constants that were fitted without it."""

    kind: str
    gpu: str
    """That all of them ran on; "" for several."""
    framework: str
    runs: int
    within: float
    """How far off nine in ten of them are predicted, as a fraction of what was measured."""
    sources: tuple[str, ...]
    """Of `data/measurements/runs`, those with the most of them first."""

    @property
    def words(self) -> str:
        """Return them in words: "14 published runs of mixtures of experts on h100-sxm-80gb with megatron"."""
        on = f" on {self.gpu}" if self.gpu else ""
        by = f" with {self.framework}" if self.framework else ""
        return f"{self.runs:,} published runs of {self.kind}{on}{by}"


@frozen
class StepsOfPairs:
    """Published steps on pairs of answers: fewer than say what nine in ten are."""

    steps: int
    within: float
    """How far off the furthest of them is predicted, as a fraction of what was measured."""


@cache
def steps_of_pairs() -> StepsOfPairs:
    """Return them: `data/calibration/pairs.toml`."""
    record = read("calibration", "pairs")
    return StepsOfPairs(steps=record["steps"], within=record["within"])


@cache
def spreads_of_kinds() -> Mapping[Kind, float]:
    """Return the half-width of each kind's own doubt, as a fraction of the step: `data/calibration/doubt.toml`."""
    record = read("calibration", "doubt")
    return {kind: float(record["spreads"][kind.value]) for kind in Kind}


def nearest_runs(kind: Kind, gpu: str, framework: str) -> Likeness | None:
    """Return the published runs that are most like a job: of its kind, with its framework, on its GPU, as far as enough are.

    None where fewer than five are of its kind.
    """
    known = _groups()
    for said in ((gpu, framework), ("", framework), (gpu, ""), ("", "")):
        found = known.get((kind.value, *said))
        if found:
            return found
    return None


@cache
def _groups() -> Mapping[tuple[str, str, str], Likeness]:
    text = (data_root() / "calibration" / "likeness.json").read_text(encoding="utf-8")
    found = (
        Likeness(**{**each, "sources": tuple(each["sources"])})
        for each in json.loads(text)["groups"]
    )
    return {(each.kind, each.gpu, each.framework): each for each in found}
