"""What was measured and fitted of collectives: `data/calibration` -> typed records in base units."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from planner.catalog.records import data_root, interconnect_defaults
from planner.catalog.tables import build
from planner.core.units import GIGA, KIB, MICRO

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveShape:
    """Constants of one operation over one kind of link; see `collective_shapes.within_node`."""

    operation: str
    latency_seconds: float
    latency_seconds_per_rank: float = 0.0
    own_share: float = 0.0
    """Bytes that a rank moves locally, relative to its part of the tensor."""
    efficiency: float = 1.0
    """Share of the link's bandwidth that a large operation reaches."""
    ramp: float = 0.0
    """Latency of one pipeline step, relative to that of the operation."""
    switch_efficiency: float = 0.0
    """Share of the link's bandwidth that a reduction inside the switch reaches; 0: cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkShape:
    """Constants of collectives between nodes; see `collectives`."""

    latency_per_doubling: float
    """Of a tree, per doubling of the nodes, relative to the network's latency."""
    latency_per_hop: float
    """Of a ring, per node beyond two, relative to the network's latency."""
    send_latency: float
    """Of one message, relative to the network's latency."""
    peer_seconds: float
    """Of an all-to-all, per rank of another node."""
    ramp: float
    contention_per_doubling: float
    """Bandwidth lost per doubling of the nodes beyond two."""
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveSystem:
    """One record of `data/calibration/collectives`: a machine whose collectives were timed."""

    name: str
    gpus: tuple[str, ...]
    relatives: tuple[str, ...]
    """GPUs with the same fabric, though perhaps fewer links, that nobody measured."""
    media: tuple[str, ...]
    """Kinds of link that the curves stand for; the constants are those of the first."""
    generation: str
    bytes_per_second: float
    """What the link's data sheet gives; the curves are taken relative to it."""
    reduces_in_switch: bool
    sizes_bytes: tuple[float, ...]
    seconds: Mapping[str, Mapping[int, tuple[float, ...]]]
    """By operation and number of ranks, for `sizes_bytes`."""
    shapes: Mapping[str, CollectiveShape]
    """By operation."""
    source: str


@cache
def collective_systems() -> tuple[CollectiveSystem, ...]:
    """Return all measured systems, by name."""
    entries = (data_root() / "calibration/collectives").iterdir()
    texts = {e.name: e.read_text(encoding="utf-8") for e in entries if e.name.endswith(".toml")}
    return tuple(_system(tomllib.loads(texts[name])) for name in sorted(texts))


def _system(record: Mapping[str, Any]) -> CollectiveSystem:
    return CollectiveSystem(
        name=record["name"],
        gpus=tuple(record["gpus"]),
        relatives=tuple(record.get("relatives", ())),
        media=tuple(record["media"]),
        generation=record["generation"],
        bytes_per_second=record["reference_gb_per_s"] * GIGA,
        reduces_in_switch=record["reduces_in_switch"],
        sizes_bytes=tuple(float(size * KIB) for size in record["sizes_kib"]),
        seconds={operation: _curves(record[operation]) for operation in OPERATIONS},
        shapes=collective_shapes(record["media"][0]),
        source=record["source"],
    )


def _curves(by_ranks: Mapping[str, list[float]]) -> Mapping[int, tuple[float, ...]]:
    return {
        int(ranks): tuple(each * MICRO for each in microseconds)
        for ranks, microseconds in by_ranks.items()
    }


def collective_system(name: str) -> CollectiveSystem | None:
    """Return a measured system by name; None when there is none."""
    return next((system for system in collective_systems() if system.name == name), None)


def measured_system(gpu: str, medium: str) -> str:
    """Return the system that was measured with that GPU, or a relative, over that medium, or ""."""
    over_medium = [system for system in collective_systems() if medium in system.media]
    own = [system.name for system in over_medium if gpu in system.gpus]
    kin = [system.name for system in over_medium if gpu in system.relatives]
    return next(iter(own + kin), "")


@cache
def collective_shapes(medium: str) -> Mapping[str, CollectiveShape]:
    """Return the constants of each operation over a kind of link; empty where none were fitted."""
    families: Mapping[str, Any] = interconnect_defaults()["collectives"]
    for family in families.values():
        if medium in family["media"]:
            return {
                operation: build(
                    CollectiveShape,
                    {"operation": operation, **family[operation]},
                    f"calibration/interconnect.collectives.{operation}",
                )
                for operation in OPERATIONS
            }
    return {}


@cache
def network_shape() -> NetworkShape:
    """Return the constants of collectives between nodes."""
    record = interconnect_defaults()["between_nodes"]
    return build(NetworkShape, record, "calibration/interconnect.between_nodes")


def first_capability_with_switch_reduction() -> float:
    """Return the compute capability from which NVSwitch reduces (NVLS)."""
    return float(interconnect_defaults()["in_switch"]["first_compute_capability"])
