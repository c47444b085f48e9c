"""Seconds of one collective between nodes: the network's share, and what the nodes do meanwhile.

Notation: n ranks, m of them in a node, N nodes of G GPUs; B the network's bandwidth per node, L
its latency; S bytes of one operation.
"""

from collections.abc import Callable, Mapping

import numpy as np

from planner.catalog.collectives import network_shape
from planner.catalog.interconnect import NetworkShape
from planner.collectives.within_node import (
    link_seconds,
    pipelined,
    reduces_in_switch,
    shape_of,
    traffic,
)
from planner.core.frozen import frozen
from planner.core.term import Amount
from planner.domain.cluster import Gpu, Link


@frozen
class Exchange:
    """One operation of a group, or of groups alike in (m, stride), that spans nodes."""

    gpu: Gpu
    inner: Link
    network: Link
    ranks_in_node: int
    gpus_per_node: int
    ranks: Amount
    nodes: Amount
    size_bytes: Amount
    copies: int = 1
    """Ranks drawn at random that each element of an all-to-all goes to, and which it reaches once per node."""

    @property
    def constants(self) -> NetworkShape:
        """Return the fitted constants of the network."""
        return network_shape()

    @property
    def bytes_per_second(self) -> Amount:
        """Return the group's share of a node's network: B * m / G, less contention.

        G / m groups of the same kind use the node's network at once; ranks of a whole rack that NVLink
        joins (m > G) send through all its nodes' networks.
        """
        share = self.network.bytes_per_second * self.ranks_in_node / self.gpus_per_node
        return share / (1 + self.constants.contention_per_doubling * np.log2(self.nodes / 2))

    def inside(self, operation: str, size_bytes: Amount) -> Amount:
        """Return the seconds of the operation among the m ranks of a node."""
        if self.ranks_in_node == 1:
            return 0.0
        return link_seconds(self.gpu, self.inner, operation, self.ranks_in_node, size_bytes)

    def slower(self, latency: Amount, leaving_bytes: Amount, inside_seconds: Amount) -> Amount:
        """Return the slower of network and node, which work at once; both wait for the network.

        Args:
            latency: of the network's part, in seconds.
            leaving_bytes: what the group's ranks of a node send to other nodes.
            inside_seconds: of the node's part.
        """
        transfer = leaving_bytes / self.bytes_per_second
        return np.maximum(
            latency + inside_seconds, pipelined(latency, transfer, self.constants.ramp)
        )


def all_reduce(x: Exchange) -> Amount:
    """Seconds of an all-reduce: the traffic of a ring, 2 (n - 1) / n * S, the latency of a tree.

    Nodes whose switch sums send N / 2 * S where that is less: the tree of two such nodes passes
    the tensor once.
    """
    doublings = 1 + x.constants.latency_per_doubling * np.log2(x.nodes)
    passes = traffic("all_reduce", x.ranks)
    if reduces_in_switch(x.gpu, x.inner):
        passes = np.minimum(passes, x.nodes / 2)
    return x.slower(
        doublings * x.network.latency_seconds,
        passes * x.size_bytes,
        x.inside("all_reduce", x.size_bytes),
    )


def all_gather(x: Exchange) -> Amount:
    """Seconds of an all-gather, a ring through all ranks."""
    return _ring(x, "all_gather")


def reduce_scatter(x: Exchange) -> Amount:
    """Seconds of a reduce-scatter, a ring through all ranks."""
    return _ring(x, "reduce_scatter")


def _ring(x: Exchange, operation: str) -> Amount:
    """Seconds of a ring: (n - 1) / n * S pass every link; its latency grows with every hop."""
    passing = traffic(operation, x.ranks) * x.size_bytes
    hops = 1 + x.constants.latency_per_hop * (x.nodes - 2)
    per_rank = shape_of(x.inner, operation).latency_seconds_per_rank
    latency = hops * x.network.latency_seconds + per_rank * (x.ranks - x.ranks_in_node)
    within = passing / traffic(operation, max(2, x.ranks_in_node))
    return x.slower(latency, passing, x.inside(operation, within))


def all_to_all(x: Exchange) -> Amount:
    """Seconds of an all-to-all: each rank sends (n - m) / n of its buffer out of the node.

        leaving = m (n - m) / n * S / e * N (1 - (1 - 1 / N)^k) / k

    Notation: e what messages to every rank reach of the network; k copies of an element that go to ranks drawn
    at random, of which those of one node are handed on inside it.
    """
    away = x.ranks - x.ranks_in_node
    latency = x.network.latency_seconds + x.constants.peer_seconds * away
    nodes = np.asarray(x.nodes, dtype=float)
    once = nodes * (1 - (1 - 1 / nodes) ** x.copies) / x.copies
    leaving = x.ranks_in_node * away / x.ranks * x.size_bytes * once
    leaving = leaving / x.constants.all_to_all_fraction
    within = x.size_bytes * x.ranks_in_node / x.ranks
    return x.slower(latency, leaving, x.inside("all_to_all", within))


def send(x: Exchange) -> Amount:
    """Seconds of one message to a rank of the next node."""
    latency = x.constants.send_latency * x.network.latency_seconds
    return x.slower(latency, x.size_bytes, 0.0)


BETWEEN_NODES: Mapping[str, Callable[[Exchange], Amount]] = {
    "all_reduce": all_reduce,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "all_to_all": all_to_all,
    "send": send,
}
