"""Bandwidth of rings that cross PCIe: from card to card, or staged in host memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from planner.catalog import records
from planner.core.units import GIGA
from planner.hardware.node_links import Wires, islands
from planner.hardware.topology import PCIE_CLASSES

_ACHIEVABLE_SHARE = 0.75
"""Of a PCIe generation that nobody measured; it is 0.76 to 0.87 of those that were."""
_LARGEST_HOST = 8
"""GPUs that one host's memory serves; nodes of more have more of it."""
_THROUGH_CPU = PCIE_CLASSES.index("PHB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """How the ring of one group crosses PCIe."""

    ranks: int
    worst_class: str
    """The farthest hop that no ring through the group can avoid."""
    crosses_sockets: bool
    is_one_way: bool
    """NVLink leads on from every card, so that none both sends and receives over PCIe."""
    staged_hops: int
    """Hops through host memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieRate:
    """What a ring gets of PCIe, and why."""

    bytes_per_second: float
    is_staged: bool
    source: str
    measured_link: str = ""
    """The record of `data/links` that was taken, if this card's was measured."""


def crossing(group: Sequence[int], wires: Wires) -> Crossing:
    """Return how a ring through the group crosses PCIe, with as few and as near hops as it can."""
    # Where no pair was read all are alike, and the first two stand for them.
    can_copy = wires.can_copy(group) if wires.reads_peers else wires.can_copy(group[:2])
    direct = can_copy and (
        wires.peer_to_peer is True or wires.is_power9 or len(group) <= _defaults()[_DIRECT]
    )
    if not wires.nvlink and not wires.pcie:
        far = min(group) < wires.second_socket <= max(group)
        return Crossing(
            ranks=len(group),
            worst_class="SYS" if far else "PHB",
            crosses_sockets=far,
            is_one_way=False,
            staged_hops=0 if direct else len(group),
        )
    bridged = islands(group, wires.links)
    apart = islands(group, lambda a, b: wires.links(a, b) or (can_copy and _is_near(wires, a, b)))
    sockets = islands(group, lambda a, b: not wires.is_across_sockets(a, b) or wires.links(a, b))
    hops = len(apart) if len(apart) > 1 else int(not can_copy)
    return Crossing(
        ranks=len(group),
        worst_class=_worst_class(bridged, wires),
        crosses_sockets=len(sockets) > 1,
        is_one_way=all(len(island) > 1 for island in bridged),
        staged_hops=0 if direct else hops,
    )


def _is_near(wires: Wires, low: int, high: int) -> bool:
    return PCIE_CLASSES.index(wires.pcie_class(low, high)) < _THROUGH_CPU


def _worst_class(bridged: Sequence[tuple[int, ...]], wires: Wires) -> str:
    """Return the farthest hop of the nearest way that joins all islands."""
    nearest = dict.fromkeys(bridged[1:], len(PCIE_CLASSES))
    reached, worst = bridged[0], 0
    # Prim's algorithm: the island that is nearest to those reached joins them.
    while nearest:
        for island in nearest:
            ranks = (PCIE_CLASSES.index(wires.pcie_class(a, b)) for a in reached for b in island)
            nearest[island] = min(nearest[island], *ranks)
        reached = min(nearest, key=lambda island: nearest[island])
        worst = max(worst, nearest.pop(reached))
    return PCIE_CLASSES[worst]


_DIRECT = "direct_through_cpu_ranks"


def _defaults() -> dict[str, Any]:
    defaults: dict[str, Any] = records.interconnect_defaults()["pcie"]
    return defaults


def pcie_rate(way: Crossing, at_once: Sequence[Crossing], wires: Wires) -> PcieRate:
    """Return the bus bandwidth of one group while its like communicate too.

        direct:          p2p_fraction * slot
        staged:          min(host_staged_fraction * slot, host_memory / (2 * hops))
        across sockets:  at most cpu_link / groups

    Notation: slot what PCIe's lanes reach; hops through host memory and groups that cross the CPU
    link, of all groups at once, at most 8 hops to a host. A card that only sends or only receives gets p2p_fraction.
    Source: `data/calibration/interconnect.toml`, [pcie]; a card whose own collectives through
    the CPU were measured gets that figure, of the next larger number of ranks.
    Leaves out: lanes that cards share behind a PCIe switch; which CPU it is; NUMA settings, which
    move staged copies by a factor of several.
    """
    measured = _measured(way, wires)
    if measured:
        record = records.link(measured)
        return PcieRate(
            bytes_per_second=record.all_reduce_bytes_per_second,
            is_staged=False,
            source=record.source,
            measured_link=measured,
        )
    defaults, generation = _defaults(), _known_generation(wires)
    slot, source = _slot(wires)
    share = "p2p_fraction" if way.is_one_way or not way.staged_hops else "host_staged_fraction"
    rate = slot * defaults[share]
    hops = min(_LARGEST_HOST, sum(other.staged_hops for other in at_once))
    if way.staged_hops:
        # A staged hop writes to host memory and reads from there, hence the 2.
        rate = min(rate, defaults["host_memory_gb_per_s"][generation] * GIGA / (2 * hops))
    groups = sum(other.crosses_sockets for other in at_once)
    if way.crosses_sockets:
        rate = min(rate, _socket(wires) / groups)
    why = defaults["host_staged_source" if way.staged_hops else "p2p_source"]
    return PcieRate(bytes_per_second=rate, is_staged=way.staged_hops > 0, source=f"{source}; {why}")


def _measured(way: Crossing, wires: Wires) -> str:
    """Return the record of this very card through the CPU: two copied, more staged."""
    by_ranks = _defaults()["measured"].get(wires.gpu.name, {})
    through_cpu = PCIE_CLASSES.index(way.worst_class) >= _THROUGH_CPU
    as_measured = (way.staged_hops > 0) == (way.ranks > _defaults()[_DIRECT])
    if not (by_ranks and through_cpu and as_measured) or wires.nvlink:
        return ""
    sizes = sorted(map(int, by_ranks))
    # The next larger measurement: rather too slow than too fast.
    nearest = next((size for size in sizes if size >= way.ranks), sizes[-1])
    return str(by_ranks[str(nearest)])


def _known_generation(wires: Wires) -> str:
    generations: list[str] = sorted(_defaults()["socket_link"])
    return min(max(str(wires.pcie_generation), generations[0]), generations[-1])


def _slot(wires: Wires) -> tuple[float, str]:
    """Return what a card's lanes reach, or the NVLinks of a POWER9 from GPU to CPU; a source."""
    if wires.is_power9:
        record = records.link(f"nvlink-{wires.gpu.nvlink_generation}")
        links = wires.gpu.nvlink_links - max(wires.nvlink.values())
        return links * record.achievable_bytes_per_second, record.source
    record = records.link(f"pcie-{_known_generation(wires)}-x16")
    reached = record.achievable_bytes_per_second or (_ACHIEVABLE_SHARE * record.bytes_per_second)
    # Links older than the oldest record: each generation has half the rate of the next.
    halvings = max(0, int(_known_generation(wires)) - wires.pcie_generation)
    return reached * wires.pcie_lanes / 16 / 2**halvings, record.source


def _socket(wires: Wires) -> float:
    defaults = _defaults()
    name = defaults["socket_link"][_known_generation(wires)]
    if wires.is_power9:
        name = defaults["power9_socket_link"]
    return records.link(name).achievable_bytes_per_second
