"""Lines of a sweep -> what nothing beats: clusters for a model, models on a cluster."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from planner.core.errors import (
    HubUnreachableError,
    ModelAccessError,
    ModelNotFoundError,
    NothingFitsError,
)
from planner.core.frozen import frozen

UNRESOLVED = tuple(
    kind.__name__ for kind in (ModelNotFoundError, ModelAccessError, HubUnreachableError)
)
"""Kinds of errors of models that could not be resolved."""


@frozen
class Point:
    """What of a plan decides, and what it is called."""

    model: str
    method: str
    cluster: str
    parameters: int
    gpus: int
    usd_per_hour: float | None
    family: str
    global_batch_size: int
    reserved_bytes: int
    tokens_per_second: float


@frozen
class Outcome:
    """All plans of a sweep."""

    points: tuple[Point, ...]
    refused: Mapping[str, int]
    """Requests without a plan, by the kind of the error."""
    unresolved: tuple[str, ...]
    """Models that could not be resolved, in the order of the file."""


@frozen
class Frontier:
    """Plans of which none is beaten in both of two amounts, the least of the first in front."""

    of: str
    """The model, or the cluster, and what is trained."""
    points: tuple[Point, ...]
    out_of: int
    is_priced: bool = False
    """Whether dollars per hour were compared, and not GPUs."""


@dataclass(slots=True)
class _Collected:
    points: list[Point] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    unresolved: dict[str, None] = field(default_factory=dict)


def outcome(rows: Iterable[Mapping[str, Any]]) -> Outcome:
    """Return what the rows of a sweep say."""
    found = _Collected()
    for row in rows:
        if row["ok"]:
            found.points.append(Point(**{each.name: row[each.name] for each in fields(Point)}))
        else:
            kind = row["error"]["type"]
            found.refused[kind] += 1
            if kind in UNRESOLVED:
                found.unresolved[_name_of(row["request"]["model"])] = None
    return Outcome(
        points=tuple(found.points),
        refused=dict(found.refused),
        unresolved=tuple(found.unresolved),
    )


def _name_of(model: Any) -> str:
    return model if isinstance(model, str) else "a config of the sweep"


def is_all_too_large(found: Outcome) -> bool:
    """Return whether no request has a plan, and all because nothing fits."""
    return not found.points and set(found.refused) == {NothingFitsError.__name__}


def clusters_for_models(found: Outcome) -> tuple[Frontier, ...]:
    """Return of each model and method the clusters that none beats in tokens per second and price.

    The price is dollars per hour where each of them has one, and the number of GPUs otherwise.
    """
    frontiers = []
    for of, points in _grouped(found.points, lambda point: f"{point.model} ({point.method})"):
        is_priced = all(point.usd_per_hour for point in points)
        price = _usd if is_priced else _gpus
        best = _unbeaten(points, price)
        if len({point.cluster for point in points}) > 1:
            frontiers.append(Frontier(of=of, points=best, out_of=len(points), is_priced=is_priced))
    return tuple(frontiers)


def models_for_clusters(found: Outcome) -> tuple[Frontier, ...]:
    """Return of each cluster and method the models that none beats in size and tokens per second."""
    frontiers = []
    for of, points in _grouped(found.points, lambda point: f"{point.cluster} ({point.method})"):
        best = _unbeaten(points, lambda point: -point.parameters)
        if len({point.model for point in points}) > 1:
            frontiers.append(Frontier(of=of, points=best, out_of=len(points)))
    return tuple(frontiers)


def _usd(point: Point) -> float:
    return point.usd_per_hour or 0.0


def _gpus(point: Point) -> float:
    return point.gpus


def _grouped(
    points: Iterable[Point], name: Callable[[Point], str]
) -> Iterable[tuple[str, list[Point]]]:
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(name(point), []).append(point)
    return groups.items()


def _unbeaten(points: Iterable[Point], price: Callable[[Point], float]) -> tuple[Point, ...]:
    best: list[Point] = []
    for point in sorted(points, key=lambda each: (price(each), -each.tokens_per_second)):
        if not best or point.tokens_per_second > best[-1].tokens_per_second:
            best.append(point)
    return tuple(best)
