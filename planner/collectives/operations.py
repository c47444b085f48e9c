"""Seconds that a collective takes over a group of ranks: one function per operation.

Within a node: the measured curve of that system where there is one, else the formula of
`collective_shapes` over the link. Between nodes: the network's latency, and the slower of what a
node's network and its inner links have to carry, as both work at once.

Notation: n ranks, m of them in a node; N = ceil(n / m) nodes of G GPUs; B the network's bandwidth
per node, of which the group gets m / G, as G / m such groups share it; L its latency. Where NVLink
joins the nodes of a rack, the rack is the node of all but B and G, and m its ranks. `size_bytes`
is the whole tensor (one rank's buffer for an all-to-all) over all `operations` together. Group,
sizes and results may be columns.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from planner.catalog.collectives import collective_system, network_shape
from planner.collectives.between_nodes import BETWEEN_NODES, Exchange
from planner.collectives.timed import is_timed, known_or_timed
from planner.collectives.within_node import link_seconds
from planner.core.errors import InvalidInputError
from planner.core.term import Amount, Column
from planner.domain.cluster import Cluster, Group, Link, Provenance


class Operation(NamedTuple):
    """What the ranks of a group do together."""

    name: str
    copies: int = 1
    """See `between_nodes.Exchange`."""


def all_reduce(
    cluster: Cluster, group: Group, size_bytes: Amount, operations: Amount = 1
) -> Amount:
    """Seconds to sum a tensor over the ranks and leave the result on all of them.

        between nodes: traffic = 2 (n - 1) / n, or N / 2 where less and the nodes' switches sum;
        latency = L (1 + d log2 N)

    Notation: d latency_per_doubling.
    Source: Patarasuk and Yuan, bandwidth-optimal ring all-reduce, JPDC 2009; nccl-tests
    PERFORMANCE.md for the bus bandwidth; NVIDIA/nccl #812 and #1244 for trees of two nodes.
    Leaves out: reductions in the network's switches (SHARP); trees of two nodes without NVLS,
    which NCCL did not take where such were measured.
    """
    return _seconds(cluster, group, size_bytes, operations, Operation("all_reduce"))


def all_gather(
    cluster: Cluster, group: Group, size_bytes: Amount, operations: Amount = 1
) -> Amount:
    """Seconds until every rank has the whole tensor, of which each held one part.

        between nodes: traffic = (n - 1) / n, latency = L (1 + h (N - 2)), a ring

    Notation: h latency_per_hop.
    Source: as `all_reduce`, one of its two halves.
    """
    return _seconds(cluster, group, size_bytes, operations, Operation("all_gather"))


def reduce_scatter(
    cluster: Cluster, group: Group, size_bytes: Amount, operations: Amount = 1
) -> Amount:
    """Seconds to sum a tensor over the ranks and leave one part on each.

        between nodes: as `all_gather`, the other way round

    Source: as `all_reduce`, its other half.
    """
    return _seconds(cluster, group, size_bytes, operations, Operation("reduce_scatter"))


def all_to_all(
    cluster: Cluster,
    group: Group,
    size_bytes: Amount,
    operations: Amount = 1,
    *,
    copies: int = 1,
) -> Amount:
    """Seconds until each rank has sent a part of its buffer to every other.

        between nodes: traffic = m (n - m) / n / e, latency = L + p (n - m); elements with several copies travel
        once to each node, see `between_nodes.all_to_all`

    Notation: p peer_seconds; e all_to_all_fraction.
    Source: NVIDIA/nccl-tests #130 for the share that leaves the node; deepseek-ai/DeepEP for copies that are handed
    on inside a node.
    Leaves out: uneven parts.
    """
    operation = Operation("all_to_all", copies)
    return _seconds(cluster, group, size_bytes, operations, operation)


def send(cluster: Cluster, group: Group, size_bytes: Amount, operations: Amount = 1) -> Amount:
    """Seconds of the slowest hop when each rank of a group sends a tensor to the next.

        within a node: all_to_all of two ranks, twice the size (each sends half of its buffer)
        between nodes: pipelined(c L, size / (B m / G))

    Notation: c send_latency.
    Leaves out: hops of the group that stay in a node, which finish earlier.
    """
    return _seconds(cluster, group, size_bytes, operations, Operation("send"))


def provenance(cluster: Cluster, group: Group) -> Provenance:
    """Return where the seconds of such a group, of numbers, come from."""
    ranks_in_node, nodes = (int(each) for each in _spread(cluster, group))
    link = cluster.link(ranks_in_node, int(group.stride))
    if is_timed(cluster, group):
        return Provenance.OWN
    if nodes == 1:
        system = collective_system(link.system)
        is_own = system is not None and cluster.gpu.name in system.gpus
        return Provenance.MEASURED if is_own else link.provenance
    both = {link.provenance, _network(cluster).provenance}
    if both == {Provenance.OWN}:
        return Provenance.OWN
    return Provenance.ASSUMED if Provenance.ASSUMED in both else Provenance.DERIVED


def source(cluster: Cluster, group: Group) -> str:
    """Return what the seconds of such a group, of numbers, are drawn from."""
    ranks_in_node, nodes = (int(each) for each in _spread(cluster, group))
    link = cluster.link(ranks_in_node, int(group.stride))
    system = collective_system(link.system)
    inner = system.source if system else link.source
    return inner if nodes == 1 else f"{inner}; {_network(cluster).source}; {network_shape().source}"


def _spread(cluster: Cluster, group: Group) -> tuple[Column, Column]:
    """Return the ranks that a group has in a node, and its nodes; rows of columns alike."""
    ranks = np.asarray(group.ranks)
    ranks_in_node = np.minimum(np.maximum(cluster.joined_gpus // group.stride, 1), ranks)
    return ranks_in_node, -(-ranks // ranks_in_node)


def _network(cluster: Cluster) -> Link:
    if cluster.inter_node is None:
        raise InvalidInputError(
            f"a group of ranks does not fit in one node of {cluster.joined_gpus} GPUs",
            hint="say how many nodes there are, and the network between them",
            field="cluster.inter_node",
        )
    return cluster.inter_node


def _seconds(
    cluster: Cluster, group: Group, size_bytes: Amount, operations: Amount, operation: Operation
) -> Amount:
    """Evaluate together the rows that are alike in place; a machine whose runs were timed has a factor of its own."""
    given = (group.ranks, group.stride, size_bytes, operations)
    if not any(np.ndim(each) for each in given):
        each = size_bytes / max(operations, 1)
        once = _alike_seconds(cluster, group, each, operation)
        return float(cluster.exchange_factor * operations * once)
    ranks, stride, size, times = np.broadcast_arrays(*given)
    seconds = np.zeros(ranks.shape)
    moving = np.flatnonzero(ranks > 1)
    if not len(moving):
        return seconds
    for alike in _alike(cluster, Group(ranks=ranks[moving], stride=stride[moving])):
        rows = moving[alike]
        same = Group(ranks=ranks[rows], stride=stride[rows])
        each = size[rows] / np.maximum(times[rows], 1)
        seconds[rows] = _alike_seconds(cluster, same, each, operation)
    total: Amount = cluster.exchange_factor * seconds * times
    return total


def _alike_seconds(
    cluster: Cluster, group: Group, size_bytes: Amount, operation: Operation
) -> Amount:
    """Seconds of one operation in groups alike in place; nothing moves in a group of one."""
    ranks, stride = (np.ravel(each)[0].item() for each in (group.ranks, group.stride))
    local = int(min(max(cluster.joined_gpus // stride, 1), ranks))
    link = cluster.link(local, int(stride))
    known = _known_seconds(cluster, link, group, size_bytes, operation)
    return known_or_timed(cluster, group, operation.name, size_bytes, known)


def _known_seconds(
    cluster: Cluster, link: Link, group: Group, size_bytes: Amount, operation: Operation
) -> Amount:
    ranks, stride = (np.ravel(each)[0].item() for each in (group.ranks, group.stride))
    local = int(min(max(cluster.joined_gpus // stride, 1), ranks))
    if ranks > local:
        exchange = Exchange(
            gpu=cluster.gpu,
            inner=link,
            network=_network(cluster),
            ranks_in_node=local,
            gpus_per_node=cluster.gpus_per_node,
            ranks=group.ranks,
            nodes=-(-group.ranks // local),
            size_bytes=size_bytes,
            copies=operation.copies,
        )
        return BETWEEN_NODES[operation.name](exchange)
    return _in_node(cluster, link, operation.name, local, size_bytes) if local > 1 else 0.0


def _in_node(
    cluster: Cluster, link: Link, operation: str, ranks: int, size_bytes: Amount
) -> Amount:
    if operation == "send":
        return link_seconds(cluster.gpu, link, "all_to_all", 2, 2 * size_bytes)
    return link_seconds(cluster.gpu, link, operation, ranks, size_bytes)


def _alike(cluster: Cluster, group: Group) -> Iterator[Column]:
    """Yield the rows of each place: the same ranks in a node, stride, and one node or several.

    Strides of a node and more are one: such groups have one rank in a node. So the places are few
    and small, and sorting them is cheap.
    """
    ranks_in_node, nodes = _spread(cluster, group)
    widest = int(ranks_in_node.max(initial=1))
    apart = np.where(ranks_in_node == 1, 0, group.stride)
    places = (apart * (widest + 1) + ranks_in_node) * 2 + (nodes > 1)
    order = np.argsort(places.astype(np.min_scalar_type(places.max(initial=0))), kind="stable")
    if order.size:
        yield from np.split(order, np.flatnonzero(np.diff(places[order])) + 1)
