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
class OlderCards:
    """What PyTorch's default build has no kernels for, and the build that has."""

    until: str
    """The first release without them."""
    oldest_capability: str
    """Compute capability of the oldest card that the default build has kernels for."""
    build: str
    source: str


@frozen
class DefaultBuild:
    """What PyTorch's default build is for."""

    cuda: str
    driver: str
    """NVIDIA's release, the oldest that runs it."""
    source: str


@frozen
class ReleasedWith:
    """Packages whose scripts need the releases that they came out with."""

    source: str
    packages: Mapping[str, Mapping[str, str]]
    """By the package: others, and their releases."""


@frozen
class Packages:
    """The record."""

    source: str
    tried: str
    """The day."""
    notes: str = ""
    older_cards: OlderCards
    default_build: DefaultBuild
    packages: Mapping[str, Releases]
    released_with: ReleasedWith


def packages() -> Mapping[str, Releases]:
    """Return the releases by the package's name in the registry."""
    return _record().packages


def released_with(package: str) -> Mapping[str, str]:
    """Return the releases of others that a package came out with, and needs."""
    return _record().released_with.packages.get(package, {})


def older_cards() -> OlderCards:
    """Return which cards need another build of PyTorch than the default one."""
    return _record().older_cards


def default_build() -> DefaultBuild:
    """Return what PyTorch's default build is for, and the driver that this takes."""
    return _record().default_build


@cache
def _record() -> Packages:
    return build(Packages, read("packages", "scripts"), "packages/scripts")
