"""What emitted scripts import, and which releases ran them: `data/packages/scripts.toml`, typed."""

from collections.abc import Mapping
from functools import cache

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen


@frozen
class Releases:
    """Of one package; what lies between the two was not tried."""

    oldest: str
    newest: str


@frozen
class Packages:
    """The record."""

    source: str
    tried: str
    """The day."""
    notes: str = ""
    packages: Mapping[str, Releases]


@cache
def packages() -> Mapping[str, Releases]:
    """Return the releases by the package's name in the registry."""
    return build(Packages, read("packages", "scripts"), "packages/scripts").packages
