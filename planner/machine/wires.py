"""Timed collectives -> what a cluster's groups take, and the links that stand for groups that were not timed."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from planner.catalog.collectives import network_shape
from planner.domain.cluster import Cluster, Link, Provenance
from planner.domain.timed import TimedCollective
from planner.machine.document import CollectiveCurve

_NAMES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "send_receive": "send",
}
"""What the operations of machine.json are called in `planner.collectives.operations`."""
_RINGS = ("all_reduce", "all_gather", "reduce_scatter")


def timed_collectives(curves: Sequence[CollectiveCurve]) -> tuple[TimedCollective, ...]:
    """Return the curves by size, the median of what was timed more than once; a broadcast has no place in a step."""
    return tuple(_timed(curve) for curve in curves if curve.operation in _NAMES and curve.points)


def _timed(curve: CollectiveCurve) -> TimedCollective:
    by_size: dict[float, list[float]] = {}
    for point in curve.points:
        by_size.setdefault(point.bytes, []).append(point.seconds)
    sizes = sorted(by_size)
    middle = (sorted(by_size[size])[len(by_size[size]) // 2] for size in sizes)
    return TimedCollective(
        operation=_NAMES[curve.operation],
        ranks=curve.ranks,
        ranks_in_node=-(-curve.ranks // curve.nodes),
        sizes_bytes=tuple(sizes),
        seconds=tuple(middle),
        slowdown=curve.slowdown,
    )


def wired(cluster: Cluster, curves: Sequence[TimedCollective], source: str) -> Cluster:
    """Return a cluster with the timed curves, and with links after them for the groups that were not timed.

    inside a node: bus bandwidth of the largest message among all GPUs of the node, latency of the smallest
    between nodes: bus bandwidth of the largest message among whole nodes, of each node; latency
    L = seconds of the smallest / (1 + d log2 N)

    Notation: N nodes; d latency_per_doubling. Source: nccl-tests PERFORMANCE.md for the bus bandwidth.
    Groups of a node that get what all of it gets follow it; those that a topology shows to get more, as two of four
    cards that NVLink joins, stay as they are.
    """
    cluster = replace(cluster, timed_collectives=tuple(curves))
    inside = _largest(each for each in curves if each.ranks == each.ranks_in_node)
    is_whole = inside is not None and inside.ranks == cluster.gpus_per_node
    if inside and is_whole:
        usual = cluster.intra_node
        link = replace(_own(usual, _bus_rate(inside), inside.seconds[0], source), system="")
        groups = {
            shape: link if each.bytes_per_second <= usual.bytes_per_second else each
            for shape, each in cluster.group_links.items()
        }
        cluster = replace(cluster, intra_node=link, group_links=groups)
    whole = (each for each in curves if each.ranks_in_node == cluster.gpus_per_node)
    across = _largest(each for each in whole if each.ranks > each.ranks_in_node)
    if across and cluster.inter_node is not None:
        nodes = -(-across.ranks // across.ranks_in_node)
        doublings = 1 + network_shape().latency_per_doubling * np.log2(nodes)
        link = _own(
            cluster.inter_node, _bus_rate(across), float(across.seconds[0] / doublings), source
        )
        cluster = replace(cluster, inter_node=link)
    return cluster


def _largest(curves: Iterable[TimedCollective]) -> TimedCollective | None:
    """Return the curve of a whole ring among the most ranks: of an all-reduce where there is one."""
    rings = [each for each in curves if each.operation in _RINGS]
    return max(rings, key=lambda each: (each.ranks, -_RINGS.index(each.operation)), default=None)


def _bus_rate(curve: TimedCollective) -> float:
    passes = (2 if curve.operation == "all_reduce" else 1) * (curve.ranks - 1) / curve.ranks
    return passes * curve.sizes_bytes[-1] / curve.seconds[-1]


def _own(link: Link, bytes_per_second: float, latency_seconds: float, source: str) -> Link:
    return replace(
        link,
        bytes_per_second=bytes_per_second,
        latency_seconds=latency_seconds,
        provenance=Provenance.OWN,
        source=source,
    )
