"""Which link any group of a node's GPUs gets: from the topology, or the GPU's own record."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from planner.catalog import records
from planner.catalog.collectives import measured_system
from planner.catalog.interconnect import interconnect
from planner.core.errors import InvalidInputError
from planner.domain.cluster import Gpu, Link, Provenance
from planner.domain.topology import Topology
from planner.hardware.node_links import NodeLinks, links_of_record, links_of_topology
from planner.hardware.nvlink_rings import ring_links
from planner.hardware.pcie import Crossing, crossing, pcie_rate, staged_because

_FAST_MEDIA = ("nvswitch", "nvlink", "xgmi", "fabric")
_EVERY_SIZE = 16
"""GPUs of a node up to which every group is looked at; beyond, only those that divide it."""

Groups = tuple[tuple[int, ...], ...]


def intra_node_link(
    gpu: Gpu,
    gpus_per_node: int,
    topology: Topology | None,
    order: Sequence[int] = (),
    *,
    peer_to_peer: bool | None = None,
) -> Link:
    """Return what a ring through all GPUs of a node gets.

    Args:
        gpu: whose record decides without a topology.
        gpus_per_node: GPUs in use.
        topology: of the node; wins over the record.
        order: physical GPU of each local rank; empty for the first ones in index order.
        peer_to_peer: False as with NCCL_P2P_DISABLE=1, which takes NVLink away too; True as with
            a driver that lets any cards copy and NCCL_P2P_LEVEL=SYS; None for what NCCL chooses.

    Raises:
        InvalidInputError: the topology shows fewer GPUs than the node has.
    """
    if gpus_per_node == 1:  # nothing is sent; the figure is a pair's, as the record has it
        return intra_node_link(gpu, 2, None, peer_to_peer=peer_to_peer)
    node = node_links(gpu, gpus_per_node, topology, peer_to_peer=peer_to_peer)
    everyone = tuple(order) or tuple(range(gpus_per_node))
    return _slowest((everyone,), node)


def group_links(
    gpu: Gpu,
    gpus_per_node: int,
    topology: Topology | None,
    order: Sequence[int] = (),
    *,
    peer_to_peer: bool | None = None,
) -> Mapping[tuple[int, int], Link]:
    """Return the link by (ranks, stride): of a node's groups of that shape, what the slowest gets.

    A group is ranks base, base + stride, ... of the node; all groups of a shape are taken to
    communicate at once. Arguments as of `intra_node_link`. Nodes of more than 16 GPUs list only
    the shapes whose extent divides them.

    Raises:
        InvalidInputError: the topology shows fewer GPUs than the node has.
    """
    node = node_links(gpu, gpus_per_node, topology, peer_to_peer=peer_to_peer)
    everyone = tuple(order) or tuple(range(gpus_per_node))
    return {shape: _slowest(groups(everyone, *shape), node) for shape in shapes(gpus_per_node)}


def shapes(gpus_per_node: int) -> list[tuple[int, int]]:
    """Return every (ranks, stride) of which a whole group fits the node."""
    extents = [
        extent
        for extent in range(2, gpus_per_node + 1)
        if gpus_per_node <= _EVERY_SIZE or gpus_per_node % extent == 0
    ]
    return [
        (ranks, extent // ranks)
        for extent in extents
        for ranks in range(2, extent + 1)
        if extent % ranks == 0
    ]


def groups(order: Sequence[int], ranks: int, stride: int) -> Groups:
    """Return the GPUs of every group of that shape in a node."""
    extent = ranks * stride
    return tuple(
        tuple(order[first + offset : first + extent : stride])
        for first in range(0, len(order) - extent + 1, extent)
        for offset in range(stride)
    )


def node_links(
    gpu: Gpu, gpus_per_node: int, topology: Topology | None, *, peer_to_peer: bool | None = None
) -> NodeLinks:
    """Return what joins each pair of a node's GPUs. Arguments as of `intra_node_link`.

    Raises:
        InvalidInputError: the topology shows fewer GPUs than the node has.
    """
    if topology is None:
        return links_of_record(gpu, gpus_per_node, peer_to_peer=peer_to_peer)
    if topology.num_gpus < gpus_per_node:
        raise InvalidInputError(
            f"the topology shows {topology.num_gpus} GPUs, but --gpus is {gpus_per_node}",
            hint=f"use --gpus {topology.num_gpus}, or the topology of the whole node",
            field="cluster.topology",
        )
    return links_of_topology(gpu, topology, peer_to_peer=peer_to_peer)


def _slowest(groups: Groups, node: NodeLinks) -> Link:
    if node.is_fabric:
        return _fabric(node.gpu, len(groups[0]))
    links = [_links_of_ring(group, node) for group in groups]
    if all(links):
        return _nvlink(node, min(links))
    # Groups that have a ring of NVLinks leave PCIe to the others.
    at_once = [crossing(g, node) for g, n in zip(groups, links, strict=True) if not n]
    return min(
        (_pcie(way, at_once, node) for way in set(at_once)), key=lambda link: link.bytes_per_second
    )


def _links_of_ring(group: Sequence[int], node: NodeLinks) -> float:
    if not node.nvlink:
        return 0
    capacities = tuple(node.nvlinks(a, b) for a, b in combinations(group, 2))
    # Through a switch every pair shows all the links that a GPU has, so their sum says too much.
    return min(capacities) if node.is_switched else ring_links(len(group), capacities)


def link_of_group(group: Sequence[int], node: NodeLinks) -> Link:
    """Return what one group of physical GPUs gets while no other communicates."""
    return _slowest((tuple(group),), node)


def _nvlink(node: NodeLinks, links: float) -> Link:
    """NVLink's ring bandwidth: the links a ring uses times what NCCL's model reaches on one."""
    gpu, assumed = node.gpu, interconnect().nvlink
    if gpu.vendor != "nvidia":
        return _xgmi(gpu, links)
    is_whole = links == gpu.nvlink_links
    record = records.link(gpu.fabric_link or f"nvlink-{assumed.default_generation}")
    return _derived(
        f"NVLink {gpu.nvlink_generation or assumed.default_generation} x {links:g}",
        links * record.achievable_bytes_per_second,
        record.source,
        medium="nvswitch" if node.is_switched else "nvlink",
        system=system_of(gpu, "nvswitch") if node.is_switched and is_whole else "",
    )


def _xgmi(gpu: Gpu, links: float) -> Link:
    fabric = interconnect().fabric
    record = records.link(gpu.fabric_link or fabric.default_link)
    return _derived(
        f"XGMI x {links:g}",
        links * record.bytes_per_second * fabric.achievable_fraction,
        f"{record.source}; a share of {fabric.achievable_fraction} is assumed",
        medium="xgmi",
    )


_DIES = 2
"""Of a package."""


def _fabric(gpu: Gpu, ranks: int) -> Link:
    """A fabric other than NVLink that gives each pair links of its own: a pair gets one part."""
    fabric = interconnect().fabric
    if ranks == _DIES and gpu.twin_bytes_per_second:
        name, given = "the other die of the package", gpu.twin_bytes_per_second
    else:
        parts = min(ranks - 1, fabric.peers)
        name = f"fabric, {parts} of {fabric.peers} peers"
        given = gpu.fabric_bytes_per_second * parts / fabric.peers
    return _derived(
        name,
        given * fabric.achievable_fraction,
        f"{gpu.name}: {gpu.source}; a share of {fabric.achievable_fraction} is assumed",
        medium="xgmi" if gpu.vendor == "amd" else "fabric",
    )


def _pcie(way: Crossing, at_once: Sequence[Crossing], node: NodeLinks) -> Link:
    rate = pcie_rate(way, at_once, node)
    through = "through host memory" if rate.is_staged else "with P2P"
    medium = "host" if rate.is_staged else "pcie"
    link = _derived(
        f"PCIe {node.pcie_generation} x{node.pcie_lanes} {through}",
        rate.bytes_per_second,
        rate.source,
        medium=medium,
        system=system_of(node.gpu, medium) if rate.measured_link else "",
    )
    if rate.is_staged:
        return replace(link, staged_because=staged_because(way, node))
    if not rate.measured_link:
        return link
    return replace(link, name=rate.measured_link, provenance=Provenance.MEASURED)


def _derived(
    name: str, bytes_per_second: float, source: str, *, medium: str, system: str = ""
) -> Link:
    return Link(
        name=name,
        bytes_per_second=bytes_per_second,
        latency_seconds=interconnect().latency_seconds,
        provenance=Provenance.DERIVED,
        source=source,
        is_fast=medium in _FAST_MEDIA,
        medium=medium,
        system=system,
    )


def system_of(gpu: Gpu, medium: str) -> str:
    """Return the measured system with this GPU and this medium, or "" where there is none."""
    return measured_system(gpu.name, medium)
