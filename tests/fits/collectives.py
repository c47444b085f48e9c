"""Fits the constants of `[collectives.*]` in data/calibration/interconnect.toml and prints them.

`make fit-collectives`. Each generation of hardware weighs the same, whatever the number of its
machines; the loss is the mean of |log(predicted / measured)|, rounded near zero.
"""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from planner.catalog.collectives import (
    OPERATIONS,
    CollectiveSystem,
    collective_systems,
)
from planner.catalog.interconnect import CollectiveShape
from planner.catalog.records import data_root
from planner.collectives.within_node import traffic, within_node
from planner.core.term import Column
from planner.core.units import GIGA, KIB, MICRO

PUBLISHED = tomllib.loads((data_root() / "calibration/collectives_published.toml").read_text())
FAMILIES = {"nvlink": {"nvswitch"}, "pcie": {"pcie", "host"}}
FREE = tuple(field.name for field in fields(CollectiveShape) if field.name != "operation")


def published(like: Sequence[CollectiveSystem]) -> list[CollectiveSystem]:
    """Return the all-reduces that others published of a node like one of those systems."""
    relatives = {system.name: system for system in like}
    found = []
    for curve in PUBLISHED["curve"]:
        if curve["nodes"] == 1 and curve["relative"] in relatives:
            sizes, seconds = zip(*timings(curve), strict=True)
            by_ranks = {"all_reduce": {curve["ranks"]: seconds}}
            found.append(replace(relatives[curve["relative"]], sizes_bytes=sizes, seconds=by_ranks))
    return found


def timings(curve: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return bytes and seconds of each point of a published curve."""
    factor = float(traffic("all_reduce", curve["ranks"]))
    pairs = zip(curve["sizes_kib"], curve["bus_gb_per_s"], strict=True)
    return [(size * KIB, factor * size * KIB / (rate * GIGA)) for size, rate in pairs]


def fit(chosen: Sequence[CollectiveSystem], operation: str) -> CollectiveShape:
    """Return the constants of an operation, by a pattern search over their logarithms."""
    rows = _rows([*chosen, *published(chosen)], operation)
    is_reduced = operation == "all_reduce" and any(it.reduces_in_switch for it in chosen)
    start = CollectiveShape(
        operation=operation,
        latency_seconds=5e-6,
        latency_seconds_per_rank=1e-6,
        ramp=0.1,
        own_share=0.3 if chosen[0].media[0] == "nvswitch" else 0.0,  # a zero stays one
        switch_efficiency=0.8 if is_reduced else 0.0,
    )
    best, loss, step = start, _loss(start, rows), 0.3
    while step > 0.003:
        moves = [
            replace(best, **{name: getattr(best, name) * factor})
            for name in FREE
            for factor in (1 + step, 1 / (1 + step))
        ]
        losses = [_loss(move, rows) for move in moves]
        if min(losses) < loss:
            best, loss = moves[int(np.argmin(losses))], min(losses)
        else:
            step /= 2
    return best


def _rows(chosen: Sequence[CollectiveSystem], operation: str) -> tuple[Column, ...]:
    """Columns of ranks, bytes, bandwidth, reduces in switch, measured seconds and weight."""
    points = [
        (system, ranks, size, seconds)
        for system in chosen
        for ranks, curve in system.seconds.get(operation, {}).items()
        for size, seconds in zip(system.sizes_bytes, curve, strict=True)
    ]
    count = Counter(system.generation for system, *_ in points)
    rows = [
        (n, size, _bandwidth(it, n), it.reduces_in_switch, seconds, 1 / count[it.generation])
        for it, n, size, seconds in points
    ]
    return tuple(np.array(column) for column in zip(*rows, strict=True))


def _bandwidth(system: CollectiveSystem, ranks: int) -> float:
    """Return the data sheet's bandwidth; for PCIe, which ranks share, that of large all-reduces."""
    if system.media[0] == "nvswitch":
        return system.bytes_per_second
    factor = float(traffic("all_reduce", ranks))
    return factor * system.sizes_bytes[-1] / system.seconds["all_reduce"][ranks][-1]


def _loss(shape: CollectiveShape, rows: tuple[Column, ...]) -> float:
    ranks, sizes, bandwidth, in_switch, seconds, weight = rows
    predicted = within_node(shape, ranks, sizes, bandwidth, in_switch=in_switch)
    return float(np.sum(weight * np.sqrt(np.log(predicted / seconds) ** 2 + 0.01)))


def as_record(shape: CollectiveShape) -> dict[str, float]:
    """Return the constants under the names and in the units of the TOML, to three digits."""
    values = {name: getattr(shape, name) for name in FREE}
    return {
        name.replace("_seconds", "_us"): float(f"{value / (MICRO if 'seconds' in name else 1):.3g}")
        for name, value in values.items()
        if value or name != "switch_efficiency"
    }


if __name__ == "__main__":
    for family, media in FAMILIES.items():
        print(f"[collectives.{family}]")
        chosen = [system for system in collective_systems() if system.media[0] in media]
        for operation in OPERATIONS:
            record = as_record(fit(chosen, operation))
            constants = ", ".join(f"{name} = {value}" for name, value in record.items())
            print(f"{operation} = {{ {constants} }}")
