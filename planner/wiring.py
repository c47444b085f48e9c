"""Which link a group of GPUs gets: from the topology, a named link, or the GPU's own record."""

from collections.abc import Mapping
from itertools import pairwise, permutations
from typing import Any

from planner import catalog
from planner.catalog import LinkRecord
from planner.cluster import Gpu, Link, Provenance
from planner.errors import InvalidInputError
from planner.topology import Topology
from planner.units import GIGA, MICRO, format_rate

_GA102_BYTES_PER_SECOND_PER_LINK = 14.0625 * GIGA
_LARGEST_MESH = 8
"""GPUs of a hybrid cube mesh; more need a switch."""
_LARGEST_SWITCH = 72
"""GPUs of one NVLink domain, rack-scale systems included."""


def intra_node_link(gpu: Gpu, gpus_per_node: int, topology: Topology | None) -> Link:
    """Return what a ring through all GPUs of a node gets.

    A topology wins; without one the GPU's record decides: its NVLink fabric where that spans the
    node, else PCIe.

    Raises:
        InvalidInputError: the topology shows fewer GPUs than the node has.
    """
    if topology is None:
        return _link_of_record(gpu, gpus_per_node)
    if topology.num_gpus < gpus_per_node:
        raise InvalidInputError(
            f"the topology shows {topology.num_gpus} GPUs, but --gpus is {gpus_per_node}",
            hint=f"use --gpus {topology.num_gpus}, or the topology of the whole node",
            field="cluster.topology",
        )
    return _link_of_topology(gpu, gpus_per_node, topology)


def _link_of_record(gpu: Gpu, gpus_per_node: int) -> Link:
    if gpu.fabric_bytes_per_second:
        return _derived(
            "fabric", gpu.fabric_bytes_per_second * 0.8, f"{gpu.name}: {gpu.source}", is_fast=True
        )
    # Bridges between pairs of cards are optional: they count only where a topology shows them.
    spans = {"nvswitch": _LARGEST_SWITCH, "mesh": _LARGEST_MESH}.get(gpu.nvlink_fabric, 0)
    if gpus_per_node <= spans:
        return _nvlink(gpu, _links_of_record(gpu, gpus_per_node))
    return _pcie(gpu, far=gpus_per_node > 4)  # noqa: PLR2004 - two sockets from 8 GPUs on


def _links_of_record(gpu: Gpu, gpus_per_node: int) -> int:
    """Return how many links a GPU has to the others: all through a switch, few in a small mesh."""
    if gpu.nvlink_fabric != "mesh":
        return gpu.nvlink_links
    links_per_pair = gpu.nvlink_links // 3  # a GPU has three neighbours in its half of the cube
    return min(gpu.nvlink_links, links_per_pair * max(1, gpus_per_node - 1))


def _link_of_topology(gpu: Gpu, gpus_per_node: int, topology: Topology) -> Link:
    """Return NVLink where it joins the GPUs to a ring, else PCIe of the worst pair's class.

    A node with more GPUs than are used lends its first ones.
    """
    nvlink = {pair: n for pair, n in topology.nvlink.items() if max(pair) < gpus_per_node}
    classes = {name for pair, name in topology.pcie.items() if max(pair) < gpus_per_node}
    if not _has_ring(gpus_per_node, nvlink):
        return _pcie(gpu, far="SYS" in classes)
    links_of_each = [
        sum(links for pair, links in nvlink.items() if index in pair)
        for index in range(gpus_per_node)
    ]
    # Through a switch every pair shows all the links that a GPU has, so their sum says too much.
    return _nvlink(gpu, min(*links_of_each, max(gpu.nvlink_links, *nvlink.values())))


def _has_ring(num_gpus: int, nvlink: Mapping[tuple[int, int], int]) -> bool:
    """Return whether a ring through all GPUs finds NVLink on every hop, as a cube mesh offers."""
    if len(nvlink) == num_gpus * (num_gpus - 1) // 2:
        return num_gpus > 1
    if num_gpus > _LARGEST_MESH:
        return False
    rings = ((0, *order, 0) for order in permutations(range(1, num_gpus)))
    return any(all((min(hop), max(hop)) in nvlink for hop in pairwise(ring)) for ring in rings)


def _nvlink(gpu: Gpu, links: int) -> Link:
    """NVLink's ring bandwidth: bonded links times what NCCL's model reaches on one."""
    is_ga102 = gpu.nvlink_bytes_per_second_per_link == _GA102_BYTES_PER_SECOND_PER_LINK
    generation = gpu.nvlink_generation or 3
    record = catalog.link("nvlink-3-ga102" if is_ga102 else f"nvlink-{generation}")
    return _derived(
        f"NVLink {generation} x {links}",
        links * record.achievable_bytes_per_second,
        record.source,
        is_fast=True,
    )


def _pcie(gpu: Gpu, *, far: bool) -> Link:
    """PCIe's ring bandwidth, with or without peer-to-peer, within or between sockets."""
    shares = catalog.interconnect_defaults()["pcie"]
    generation = gpu.pcie_generation or 4
    record = catalog.link(f"pcie-{generation}-x16")
    achievable = record.achievable_bytes_per_second or 0.75 * record.bytes_per_second
    lanes = (gpu.pcie_lanes or 16) / 16
    way = "p2p" if gpu.has_p2p else "host_staged"
    share = shares[f"{way}_fraction"] * (shares["cross_socket_fraction"] if far else 1)
    through = "with P2P" if gpu.has_p2p else "through host memory (no P2P)"
    return _derived(
        f"PCIe {generation} x{gpu.pcie_lanes or 16} {through}",
        achievable * lanes * share,
        f"{record.source}; {shares[f'{way}_source']}",
    )


def _derived(name: str, bytes_per_second: float, source: str, *, is_fast: bool = False) -> Link:
    return Link(
        name=name,
        bytes_per_second=bytes_per_second,
        latency_seconds=catalog.interconnect_defaults()["latency_us"] * MICRO,
        provenance=Provenance.DERIVED,
        source=source,
        is_fast=is_fast,
    )


def named_link(wish: str | Mapping[str, float], field: str, gpu: Gpu | None = None) -> Link:
    """Return the link that the user named or measured.

    Args:
        wish: a name of `data/links`, or `bus_gb_per_s` (GPUs of a node) or `gb_per_s_per_node`
            with an optional `latency_us`.
        field: where the wish was made, for the error.
        gpu: whose links are meant; a named NVLink generation then counts all of them.

    Raises:
        UnknownNameError: no link has that name.
    """
    defaults = catalog.interconnect_defaults()
    if isinstance(wish, str):
        record = catalog.link(wish, field)
        is_one_of_many = record.kind == "nvlink" and record.scope == "link"
        links = gpu.nvlink_links if gpu and is_one_of_many else 1
        return _link_of_name(record, defaults, links or 1)
    bandwidth = wish.get("bus_gb_per_s") or wish["gb_per_s_per_node"]
    return Link(
        name=f"as given, {format_rate(bandwidth * GIGA)}",
        bytes_per_second=bandwidth * GIGA,
        latency_seconds=wish.get("latency_us", defaults["latency_us"]) * MICRO,
        provenance=Provenance.MEASURED,
        source="given by the user",
        is_fast=bandwidth * GIGA > catalog.link("pcie-5-x16").bytes_per_second,
    )


def _link_of_name(record: LinkRecord, defaults: Mapping[str, Any], links: int = 1) -> Link:
    measured = record.all_reduce_bytes_per_second
    reached = record.achievable_bytes_per_second or (
        record.bytes_per_second * defaults["network"]["achievable_fraction"]
    )
    section = defaults["network"] if record.kind == "network" else defaults
    return Link(
        name=record.name if links == 1 else f"{record.name} x {links}",
        bytes_per_second=measured or links * reached,
        latency_seconds=record.latency_seconds or section["latency_us"] * MICRO,
        provenance=Provenance.MEASURED if measured else Provenance.DERIVED,
        source=record.source,
        is_fast=record.kind == "nvlink",
    )


def assumed_network() -> Link:
    """Return the link between nodes that is assumed when nothing was said."""
    defaults = catalog.interconnect_defaults()
    link = _link_of_name(catalog.link(defaults["network"]["default"]), defaults)
    return Link(
        name=link.name,
        bytes_per_second=link.bytes_per_second,
        latency_seconds=link.latency_seconds,
        provenance=Provenance.ASSUMED,
        source=defaults["network"]["source"],
    )
