"""What each finding about a topology, of the probe or of a check means: `data/findings`, one text for every door that explains a code."""

from collections.abc import Mapping
from functools import cache

from planner.catalog.records import read


@cache
def findings(about: str) -> Mapping[str, str]:
    """Return statement, Why, Instead and Source by code, about a "topology", of the "probe" or of a "check"."""
    return {code: _text(said) for code, said in _records(about).items()}


@cache
def finding_names(about: str) -> Mapping[str, str]:
    """Return the short name of what is judged, by code."""
    return {code: said["name"] for code, said in _records(about).items()}


def functions(about: str) -> Mapping[str, tuple[str, str]]:
    """Return by code the function that looks for what is found in "scripts", by its name, and how bad it is."""
    records = _records(about).items()
    return {code: (said["name"].replace("-", "_"), said["level"]) for code, said in records}


def explained(statement: str, about: str, code: str) -> str:
    """Return a rule's text: its own statement, with Why, Instead and Source as the findings about "scripts" or "timings" have them."""
    return _text({"statement": statement, **_records(about)[code]})


def instead(about: str, code: str) -> str:
    """Return what to do instead, on one line."""
    return _records(about)[code]["instead"]


def _records(about: str) -> Mapping[str, Mapping[str, str]]:
    return {code: said for code, said in read("findings", about).items() if code != "source"}


def _text(said: Mapping[str, str]) -> str:
    parts = (said["statement"], f"Why: {said['why']}", f"Instead: {said['instead']}")
    source = (f"Source: {said['source']}",) if "source" in said else ()
    return "\n\n".join((*parts, *source))
