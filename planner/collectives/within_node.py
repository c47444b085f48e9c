"""Seconds of one collective within a node: the formula, and what measurements say on top of it."""

import math
from functools import lru_cache

import numpy as np

from planner.catalog.collectives import (
    CollectiveSystem,
    collective_shapes,
    collective_system,
    first_capability_with_switch_reduction,
)
from planner.catalog.interconnect import CollectiveShape
from planner.core.term import Amount, Column
from planner.domain.cluster import Gpu, Link, Provenance

_MOST_KEPT = 1024
"""Curves: of a few systems and operations, and of any number of ranks."""


def link_seconds(gpu: Gpu, link: Link, operation: str, ranks: int, size_bytes: Amount) -> Amount:
    """Seconds of one operation among `ranks` GPUs of a node that see that link.

    A measured system answers by its curve, and its relatives by the same curve over their own
    bandwidth; a link whose figures the user gave by exactly those, latency + traffic * size /
    bandwidth; any other by formula.
    """
    system = collective_system(link.system)
    if system:
        is_own = gpu.name in system.gpus
        bytes_per_second = system.bytes_per_second if is_own else link.bytes_per_second
        return measured(system, operation, ranks, size_bytes, bytes_per_second)
    return within_node(
        shape_of(link, operation),
        ranks,
        size_bytes,
        link.bytes_per_second,
        in_switch=reduces_in_switch(gpu, link),
    )


def shape_of(link: Link, operation: str) -> CollectiveShape:
    """Return the constants of an operation over a link; what the user gave or timed has no others."""
    given = CollectiveShape(operation=operation, latency_seconds=link.latency_seconds)
    if link.provenance == Provenance.OWN:
        return given
    return collective_shapes(link.medium).get(operation, given)


def reduces_in_switch(gpu: Gpu, link: Link) -> bool:
    """Return whether the switch between the GPUs can sum (NVLS), where no timed rate has that in it."""
    if link.medium != "nvswitch" or link.provenance == Provenance.OWN:
        return False
    return float(gpu.compute_capability or 0) >= first_capability_with_switch_reduction()


def traffic(operation: str, ranks: Amount) -> Amount:
    """Return the bytes that a rank sends, relative to the tensor: the bus bandwidth's convention.

    Source: nccl-tests PERFORMANCE.md.
    """
    return (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks


def pipelined(latency: Amount, transfer: Amount, ramp: Amount) -> Amount:
    """Seconds of a pipelined operation that takes `transfer` seconds of pure bandwidth.

        seconds = latency + transfer + 2 * sqrt(ramp * latency * transfer)

    A pipeline of k chunks over hops that cost c each takes transfer + k * c + transfer / k * hops;
    the best k leaves the square root, which is what keeps medium sizes below the bandwidth.
    """
    return latency + transfer + 2 * np.sqrt(ramp * latency * transfer)


def transfer_seconds(
    shape: CollectiveShape,
    ranks: Amount,
    size_bytes: Amount,
    bytes_per_second: Amount,
    *,
    in_switch: Amount = False,
) -> Amount:
    """Seconds at full bandwidth, over a ring or reduced in the switch, whichever is faster.

        ring: (traffic + own_share / n) * size / (efficiency * bandwidth)
        switch: (1 + 1 / n) * size / (switch_efficiency * bandwidth)

    Notation: n ranks; own_share: a rank's own part is copied too, through the same engines.
    Source: NVLS sends the whole tensor up and gets its part of the sum, and the other way round.
    """
    share = traffic(shape.operation, ranks) + shape.own_share / ranks
    ring = share * size_bytes / (shape.efficiency * bytes_per_second)
    if not shape.switch_efficiency:
        return ring
    switch = (1 + 1 / ranks) * size_bytes / (shape.switch_efficiency * bytes_per_second)
    return np.where(in_switch, np.minimum(ring, switch), ring)


def within_node(
    shape: CollectiveShape,
    ranks: Amount,
    size_bytes: Amount,
    bytes_per_second: Amount,
    *,
    in_switch: Amount = False,
) -> Amount:
    """Seconds of one operation among the GPUs of a node, by formula.

        seconds = pipelined(latency + per_rank * (n - 1), transfer)

    Source: `data/calibration/interconnect.toml`, fitted on the measured systems.
    Leaves out: the jumps where NCCL changes its protocol (LL, LL128, Simple).
    """
    latency = shape.latency_seconds + shape.latency_seconds_per_rank * (ranks - 1)
    transfer = transfer_seconds(shape, ranks, size_bytes, bytes_per_second, in_switch=in_switch)
    return pipelined(latency, transfer, shape.ramp)


def measured(
    system: CollectiveSystem,
    operation: str,
    ranks: int,
    size_bytes: Amount,
    bytes_per_second: float,
) -> Amount:
    """Seconds of one operation on a measured system, between and beyond its points.

        seconds = formula * (measured / formula at the points around)

    The ratio is interpolated over the logarithms of size and ranks, and held beyond the points:
    there bandwidth rules above the largest size and latency below the smallest.
    """
    wanted = np.log(np.maximum(size_bytes, 1.0))
    ratio = np.exp(np.interp(wanted, *_log_ratio_curve(system, operation, ranks)))
    return ratio * _formula(system, operation, ranks, size_bytes, bytes_per_second)


@lru_cache(maxsize=_MOST_KEPT)
def _log_ratio_curve(system: CollectiveSystem, operation: str, ranks: int) -> tuple[Column, Column]:
    known = sorted(system.seconds[operation])
    low = max((n for n in known if n <= ranks), default=known[0])
    high = min((n for n in known if n >= ranks), default=known[-1])
    weight = 0.0 if low == high else math.log(ranks / low) / math.log(high / low)
    below, above = (_log_ratios(system, operation, n) for n in (low, high))
    return np.log(np.asarray(system.sizes_bytes)), (1 - weight) * below + weight * above


def _log_ratios(system: CollectiveSystem, operation: str, ranks: int) -> Column:
    sizes = np.asarray(system.sizes_bytes)
    points = np.asarray(system.seconds[operation][ranks])
    formula = _formula(system, operation, ranks, sizes, system.bytes_per_second)
    return np.asarray(np.log(points / formula))


def _formula(
    system: CollectiveSystem,
    operation: str,
    ranks: int,
    size_bytes: Amount,
    bytes_per_second: float,
) -> Amount:
    return within_node(
        system.shapes[operation],
        ranks,
        size_bytes,
        bytes_per_second,
        in_switch=system.reduces_in_switch,
    )
