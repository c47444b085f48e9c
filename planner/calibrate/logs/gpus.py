"""A GPU as a log names it, beside one of the catalogue: the same, another variant of its kind, or another."""

from enum import StrEnum
from functools import cache

from planner.catalog import records
from planner.core.errors import PlannerError
from planner.request.cluster import resolve_cluster
from planner.request.sections import ClusterRequest

_MAKERS = ("nvidia", "amd", "intel", "instinct", "tesla", "quadro", "geforce")
_SERIES = ("rtx", "gtx", "titan")
"""Names that many kinds share; there the whole record is the kind."""


class Likeness(StrEnum):
    """What two names of GPUs have in common."""

    SAME = "same"
    """As far as the log says: NVIDIA H100 may be any H100."""
    VARIANT = "variant"
    """One kind, of other memory or another socket."""
    OTHER = "other"
    UNKNOWN = "unknown"


def gpu_name(gpu: str) -> str:
    """Return what the catalogue calls a GPU that a log names; the log's own name where it is not known."""
    try:
        return resolve_cluster(ClusterRequest(gpu=gpu)).cluster.gpu.name
    except (PlannerError, ValueError):
        return gpu


def likeness(logged: str, named: str) -> Likeness:
    """Return how a GPU that a log names compares with one that a layout or a machine file names."""
    one, other = gpu_name(logged), gpu_name(named)
    if one == other:
        return Likeness.SAME
    if "cpu" in {one, other}:
        return (
            Likeness.SAME if one.startswith("cpu") and other.startswith("cpu") else Likeness.OTHER
        )
    kinds = _kind(one), _kind(other)
    if "" in kinds:
        return Likeness.UNKNOWN
    if kinds[0] != kinds[1]:
        return Likeness.OTHER
    is_bare = any(_words(name) == (kind,) for name, kind in zip((one, other), kinds, strict=True))
    return Likeness.SAME if is_bare else Likeness.VARIANT


def _kind(name: str) -> str:
    """Return the kind of a GPU, such as h100; "" where no record is of it."""
    if name in records.gpu_names() and name.split("-", maxsplit=1)[0] in _SERIES:
        return name
    first = next(iter(_words(name)), "")
    return first if first in _kinds() else ""


@cache
def _kinds() -> frozenset[str]:
    return frozenset(name.split("-")[0] for name in records.gpu_names()) - {*_SERIES}


def _words(name: str) -> tuple[str, ...]:
    words = name.lower().replace("-", " ").split()
    return tuple(word for word in words if word not in _MAKERS)
