"""Bandwidth of rings that cross PCIe: from card to card, or staged in host memory."""

from collections.abc import Sequence

from planner.catalog import records
from planner.catalog.interconnect import interconnect
from planner.core.frozen import frozen
from planner.domain.topology import PCIE_CLASSES
from planner.hardware.node_links import NodeLinks, islands

_LANES = 16
"""Of the records `pcie-<generation>-x16`."""
_THROUGH_CPU = PCIE_CLASSES.index("PHB")


@frozen
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


@frozen
class PcieRate:
    """What a ring gets of PCIe, and why."""

    bytes_per_second: float
    is_staged: bool
    source: str
    measured_link: str = ""
    """The record of `data/links` that was taken, if this card's was measured."""


def crossing(group: Sequence[int], node: NodeLinks) -> Crossing:
    """Return how a ring through the group crosses PCIe, with as few and as near hops as it can."""
    # Where no pair was read all are alike, and the first two stand for them.
    can_copy = node.can_copy(group) if node.reads_peers else node.can_copy(group[:2])
    direct = can_copy and (
        node.peer_to_peer is True
        or node.is_power9
        or len(group) <= interconnect().pcie.direct_through_cpu_ranks
    )
    if not node.nvlink and not node.pcie:
        far = min(group) < node.second_socket <= max(group)
        return Crossing(
            ranks=len(group),
            worst_class="SYS" if far else "PHB",
            crosses_sockets=far,
            is_one_way=False,
            staged_hops=0 if direct else len(group),
        )
    bridged = islands(group, node.nvlinks)
    apart = islands(group, lambda a, b: node.nvlinks(a, b) or (can_copy and _is_near(node, a, b)))
    sockets = islands(group, lambda a, b: not node.is_across_sockets(a, b) or node.nvlinks(a, b))
    hops = len(apart) if len(apart) > 1 else int(not can_copy)
    return Crossing(
        ranks=len(group),
        worst_class=_worst_class(bridged, node),
        crosses_sockets=len(sockets) > 1,
        is_one_way=all(len(island) > 1 for island in bridged),
        staged_hops=0 if direct else hops,
    )


def _is_near(node: NodeLinks, low: int, high: int) -> bool:
    return PCIE_CLASSES.index(node.pcie_class(low, high)) < _THROUGH_CPU


def _worst_class(bridged: Sequence[tuple[int, ...]], node: NodeLinks) -> str:
    """Return the farthest hop of the nearest way that joins all islands."""
    nearest = dict.fromkeys(bridged[1:], len(PCIE_CLASSES))
    reached, worst = bridged[0], 0
    # Prim's algorithm: the island that is nearest to those reached joins them.
    while nearest:
        for island in nearest:
            ranks = (PCIE_CLASSES.index(node.pcie_class(a, b)) for a in reached for b in island)
            nearest[island] = min(nearest[island], *ranks)
        reached = min(nearest, key=lambda island: nearest[island])
        worst = max(worst, nearest.pop(reached))
    return PCIE_CLASSES[worst]


def pcie_rate(way: Crossing, at_once: Sequence[Crossing], node: NodeLinks) -> PcieRate:
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
    measured = _measured_link(way, node)
    if measured:
        record = records.link(measured)
        return PcieRate(
            bytes_per_second=record.all_reduce_bus_bytes_per_second,
            is_staged=False,
            source=record.source,
            measured_link=measured,
        )
    defaults = interconnect().pcie
    slot, source = _slot_rate(node)
    is_direct = way.is_one_way or not way.staged_hops
    rate = slot * (defaults.p2p_fraction if is_direct else defaults.host_staged_fraction)
    hops = min(defaults.gpus_per_host_memory, sum(ring.staged_hops for ring in at_once))
    if way.staged_hops:
        generation = defaults.known_generation(node.pcie_generation)
        rate = min(rate, defaults.host_memory_bytes_per_second[generation] / (2 * hops))
    groups = sum(ring.crosses_sockets for ring in at_once)
    if way.crosses_sockets:
        rate = min(rate, _socket_rate(node) / groups)
    why = defaults.host_staged_source if way.staged_hops else defaults.p2p_source
    return PcieRate(bytes_per_second=rate, is_staged=way.staged_hops > 0, source=f"{source}; {why}")


def staged_because(way: Crossing, node: NodeLinks) -> str:
    """Return why a ring goes through host memory: the user, the card, or what lies between the cards."""
    if node.peer_to_peer is False:
        return "copies from GPU to GPU are switched off"
    if any(not reads for reads in node.reads_peers.values()):
        return "the driver lets not every pair of GPUs copy to each other"
    if not node.can_copy(range(node.num_gpus)):
        return f"{node.gpu.name} cannot copy to another card over PCIe"
    between = "the link between two CPUs" if way.crosses_sockets else "the CPU"
    seen = "" if node.pcie or node.nvlink else ", as nodes without a topology are assumed to do"
    return (
        f"the cards could copy to each other, but more than"
        f" {interconnect().pcie.direct_through_cpu_ranks} of them meet through {between}{seen},"
        " where NCCL stages copies"
    )


def _measured_link(way: Crossing, node: NodeLinks) -> str:
    """Return the record of this very card through the CPU: two copied, more staged."""
    by_ranks = interconnect().pcie.measured.get(node.gpu.name, {})
    through_cpu = PCIE_CLASSES.index(way.worst_class) >= _THROUGH_CPU
    as_measured = (way.staged_hops > 0) == (
        way.ranks > interconnect().pcie.direct_through_cpu_ranks
    )
    if not (by_ranks and through_cpu and as_measured) or node.nvlink:
        return ""
    sizes = sorted(by_ranks)
    return by_ranks[next((size for size in sizes if size >= way.ranks), sizes[-1])]


def slot_bytes_per_second(generation: int, lanes: int) -> tuple[float, str]:
    """Return what a card's PCIe lanes reach; a source.

    slot = reached by 16 lanes * lanes / 16 / 2^(generations older than the oldest record)
    """
    defaults = interconnect().pcie
    known = defaults.known_generation(generation)
    record, reached = defaults.x16_link(known)
    return reached * lanes / _LANES / 2 ** max(0, known - generation), record.source


def _slot_rate(node: NodeLinks) -> tuple[float, str]:
    """Return what a card's lanes reach, or the NVLinks of a POWER9 from GPU to CPU; a source."""
    if node.is_power9:
        record = records.link(node.gpu.fabric_link)
        links = node.gpu.nvlink_links - max(node.nvlink.values())
        return links * record.achievable_bytes_per_second, record.source
    return slot_bytes_per_second(node.pcie_generation, node.pcie_lanes)


def _socket_rate(node: NodeLinks) -> float:
    assumed = interconnect()
    by_generation = assumed.pcie.socket_link
    name = by_generation[assumed.pcie.known_generation(node.pcie_generation)]
    if node.is_power9:
        name = assumed.power9.socket_link
    return records.link(name).achievable_bytes_per_second
