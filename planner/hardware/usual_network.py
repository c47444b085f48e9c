"""The network between nodes where the user named none: the instance's, or what such nodes are sold with."""

import math
from functools import cache

from planner.catalog import records
from planner.catalog.interconnect import interconnect
from planner.catalog.tables import build
from planner.core.frozen import frozen
from planner.core.units import format_bit_rate
from planner.domain.cluster import Cluster, Gpu, Instance, Link, Provenance
from planner.hardware.named_links import assumed, ports

_USUAL_NODE, _LARGEST_NODE = 8, 16
"""GPUs of a node where its record says no other: HGX boards and servers; HGX A100, DGX-2 and a2-megagpu-16g."""


@frozen
class NodeNetwork:
    """One record of `data/calibration/node_networks.toml`: what joins nodes of these GPUs, where nothing was said."""

    gpus: tuple[str, ...]
    link: str
    """A record of `data/links`, by port."""
    ports_per_gpu: float = 0.0
    """0: one port per node, however many GPUs it has."""
    node_gpus: int = _USUAL_NODE
    """GPUs of such a node as a rule."""
    largest_node: int = _LARGEST_NODE
    """The most that one is sold with."""
    because: str
    """Said of the assumption, as in "as DGX H100 has"."""
    otherwise: str
    """Another network that such nodes are commonly found on, one port per node."""
    source: str

    def ports(self, gpus_per_node: int) -> int:
        """Return the ports of a node of so many GPUs."""
        return max(1, math.ceil(self.ports_per_gpu * gpus_per_node))


@cache
def _by_gpu() -> dict[str, NodeNetwork]:
    tables = records.read("calibration", "node_networks")["network"]
    path = "calibration/node_networks"
    found = (build(NodeNetwork, table, f"{path}[{i}]") for i, table in enumerate(tables))
    return {gpu: network for network in found for gpu in network.gpus}


def node_network(gpu: str) -> NodeNetwork | None:
    """Return what nodes of that GPU are sold with; None for several kinds in one node."""
    return _by_gpu().get(gpu)


def usual_node(gpu: str) -> tuple[int, int]:
    """Return how many GPUs a node of them usually has, and how many at the most."""
    sold = node_network(gpu)
    return (sold.node_gpus, sold.largest_node) if sold else (_USUAL_NODE, _LARGEST_NODE)


def usual_network(gpu: Gpu, gpus_per_node: int, instance: Instance | None) -> tuple[Link, str]:
    """Return the network of such nodes, and in words what of it is assumed ("" where it is known).

        ports = max(1, ceil(ports_per_gpu * gpus_per_node))

    Source: the instance's record, or `data/calibration/node_networks.toml`.
    Leaves out: machines with fewer rails than the vendor's own.
    """
    if instance and instance.network_bytes_per_second:
        return network_of_instance(instance), ""
    sold = node_network(gpu.name)
    # Clouds sell nodes of a baseboard without its rails too.
    if sold is None or (instance and sold.ports_per_gpu):
        link = _least_network()
        unknown = f", as the network of {instance.name} is not known" if instance else ""
        return link, f"{link.name} between nodes{unknown}"
    count = sold.ports(gpus_per_node)
    rate = format_bit_rate(records.link(sold.link).bytes_per_second)
    each = rate if count == 1 else f"{count} x {rate}"
    link = assumed(ports(sold.link, count), sold.source)
    return link, f"{link.name} between nodes ({each}), {sold.because}"


def network_of_instance(instance: Instance) -> Link:
    """Return the network of a cloud instance as its data sheet has it.

        bytes per second = achievable share x nominal rate of one node

    Source: the instance's record; share and latency from `data/calibration/interconnect.toml`.
    Leaves out: how the GPUs of a node share its network cards.
    """
    network = interconnect().network
    rate = format_bit_rate(instance.network_bytes_per_second)
    return Link(
        name=f"{instance.name} network, {rate}",
        bytes_per_second=instance.network_bytes_per_second * network.achievable_fraction,
        latency_seconds=network.latency_seconds,
        provenance=Provenance.DERIVED,
        source=instance.source,
        medium="network",
    )


def _least_network() -> Link:
    """Return what is assumed where not even the kind of node is known: mixed GPUs, or a cloud's."""
    defaults = interconnect().network
    return assumed(ports(defaults.default, 1), defaults.source)


def other_network(cluster: Cluster) -> Link | None:
    """Return another network that such nodes are commonly found on; None where theirs is known."""
    sold, link = node_network(cluster.gpu.name), cluster.inter_node
    if link is None or link.provenance is not Provenance.ASSUMED or sold is None:
        return None
    other = assumed(ports(sold.otherwise, 1), sold.source)
    return None if other.name == link.name else other
