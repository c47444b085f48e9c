"""Seconds that a collective takes over a link: one function per operation, sizes in bytes.

All are ring algorithms: each of n ranks sends and receives at the link's bus bandwidth, plus one
latency per operation. Sizes and results may be columns.
"""

from planner.cluster import Link
from planner.term import Amount


def all_reduce(link: Link, ranks: Amount, size_bytes: Amount, operations: Amount = 1) -> Amount:
    """Seconds to sum a tensor over the ranks and leave the result on all of them.

        seconds = operations * latency + 2 * (n - 1) / n * size / bandwidth

    Notation: size of all operations together; n ranks.
    Source: Patarasuk and Yuan, bandwidth-optimal ring all-reduce, JPDC 2009; nccl-tests
    PERFORMANCE.md for the bus bandwidth.
    Leaves out: tree and in-switch (NVLS) algorithms; the ring's n - 1 hops of latency.
    """
    return operations * link.latency_seconds + _ring(link, ranks, 2 * size_bytes)


def all_gather(link: Link, ranks: Amount, size_bytes: Amount, operations: Amount = 1) -> Amount:
    """Seconds until every rank has the whole tensor, of which each held one part.

        seconds = operations * latency + (n - 1) / n * size / bandwidth

    Notation: size of the whole tensor, over all operations together; n ranks.
    Source: as `all_reduce`, one of its two halves.
    """
    return operations * link.latency_seconds + _ring(link, ranks, size_bytes)


def reduce_scatter(link: Link, ranks: Amount, size_bytes: Amount, operations: Amount = 1) -> Amount:
    """Seconds to sum a tensor over the ranks and leave one part on each.

        seconds = operations * latency + (n - 1) / n * size / bandwidth

    Notation: size of the whole tensor, over all operations together; n ranks.
    Source: as `all_reduce`, its other half.
    """
    return operations * link.latency_seconds + _ring(link, ranks, size_bytes)


def _ring(link: Link, ranks: Amount, size_bytes: Amount) -> Amount:
    return (ranks - 1) / ranks * size_bytes / link.bytes_per_second
