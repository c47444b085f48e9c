"""Seconds of a collective that was timed on the user's own machine, between its points and beyond them.

    between two sizes: log seconds is linear in log size;  above the largest: its bandwidth;  below the smallest: its seconds

Groups between nodes are only taken where they hold whole nodes, as others share the network with their like, and
groups inside a node only where they get the link that all of it has.
"""

import numpy as np

from planner.core.term import Amount, Truth
from planner.domain.cluster import Cluster, Group
from planner.domain.timed import TimedCollective


def known_or_timed(
    cluster: Cluster, group: Group, operation: str, size_bytes: Amount, known: Amount
) -> Amount:
    """Return the timed seconds of one operation where such a group was timed, row by row, else the known ones."""
    found = known
    for curve in cluster.timed_collectives:
        if curve.operation == operation and _is_alike(cluster, curve, group):
            rows = np.equal(group.ranks, curve.ranks)
            found = np.where(rows, timed_seconds(curve, size_bytes), found)
    return found


def known_or_timed_slowdown(
    cluster: Cluster, group: Group, operation: str, known: Amount
) -> Amount:
    """Return what compute loses per second of an operation beside it where that was timed, row by row, else what is known."""
    found = known
    for curve in cluster.timed_collectives:
        if curve.operation == operation and curve.slowdown is not None:
            rows = _are_alike(cluster, curve, group)
            found = np.where(rows, curve.slowdown, found)
    return found


def timed_seconds(curve: TimedCollective, size_bytes: Amount) -> Amount:
    """Return the seconds of a size on a timed curve."""
    sizes, seconds = np.asarray(curve.sizes_bytes), np.asarray(curve.seconds)
    size = np.maximum(size_bytes, 1.0)
    between = np.exp(np.interp(np.log(size), np.log(sizes), np.log(seconds)))
    found: Amount = between * np.maximum(1.0, size / sizes[-1])
    return found


def is_timed(cluster: Cluster, group: Group) -> bool:
    """Return whether any operation of such a group, of numbers, was timed."""
    return any(
        curve.ranks == group.ranks and _is_alike(cluster, curve, group)
        for curve in cluster.timed_collectives
    )


def _are_alike(cluster: Cluster, curve: TimedCollective, group: Group) -> Truth:
    ranks, strides = np.broadcast_arrays(np.asarray(group.ranks), np.asarray(group.stride))
    found = np.array(ranks == curve.ranks)
    for stride in np.unique(strides[found]):
        one = Group(ranks=curve.ranks, stride=int(stride))
        found &= (strides != stride) | _is_alike(cluster, curve, one)
    return found


def _is_alike(cluster: Cluster, curve: TimedCollective, group: Group) -> bool:
    ranks, stride = (int(np.ravel(each)[0]) for each in (group.ranks, group.stride))
    local = min(max(cluster.joined_gpus // stride, 1), ranks)
    if local != curve.ranks_in_node:
        return False
    if curve.ranks > local:
        return ranks > local == cluster.joined_gpus
    return ranks == local and cluster.link(local, stride) == cluster.intra_node
