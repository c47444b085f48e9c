"""What each version of the planner brought: `data/news/versions.toml`, typed."""

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


@cache
def news() -> tuple[Version, ...]:
    """Return the versions, the newest first."""
    said = read("news", "versions")["versions"].items()
    return tuple(
        build(Version, {"number": number, **version}, f"news/versions.{number}")
        for number, version in said
    )
