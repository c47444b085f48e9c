"""What each version of the planner brought: `data/news/versions.toml`, typed."""

from collections.abc import Mapping
from functools import cache

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen


@frozen
class Version:
    """One version, and a line for each thing that its users see."""

    number: str
    date: str
    lines: tuple[str, ...]


@frozen
class _News:
    versions: Mapping[str, Version]


@cache
def news() -> tuple[Version, ...]:
    """Return the versions, the newest first."""
    record = read("news", "versions")
    versions = {number: {"number": number, **said} for number, said in record["versions"].items()}
    return tuple(build(_News, {"versions": versions}, "news/versions").versions.values())
