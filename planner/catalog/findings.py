"""What each finding about a topology, or of the probe, means: `data/findings`, one text for every door that explains a code."""

from collections.abc import Mapping
from functools import cache

from planner.catalog.records import read


@cache
def findings(about: str) -> Mapping[str, str]:
    """Return statement, Why, Instead and Source by code, about a "topology" or of the "probe"."""
    return {
        code: f"{said['statement']}\n\nWhy: {said['why']}\n\nInstead: {said['instead']}\n\nSource: {said['source']}"
        for code, said in read("findings", about).items()
    }
