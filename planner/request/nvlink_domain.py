"""Which GPUs NVLink joins beyond a node: from the request, the instance, the probe or the GPU's record."""

from dataclasses import replace

from planner.catalog import records
from planner.catalog.interconnect import interconnect
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.cluster import Gpu, Instance, Link
from planner.domain.strategy import nearest_multiples
from planner.domain.topology import NO_FABRIC_CLUSTER, Topology
from planner.hardware.group_links import intra_node_link, system_of
from planner.hardware.named_links import link_inside, rack_record

FIELD = "cluster.nvlink_domain_gpus"


@frozen
class NvlinkDomain:
    """The GPUs that NVLink joins, of several nodes together, and what they see of each other."""

    gpus: int = 0
    """0: those of a node alone."""
    link: Link | None = None
    assumption: str = ""
    """In words, where the GPU's record alone speaks of it."""


def nvlink_domain(  # noqa: PLR0913 - each may speak of it
    gpu: Gpu,
    gpus_per_node: int,
    *,
    given: int | None,
    network: object,
    instance: Instance | None,
    topology: Topology | None,
) -> NvlinkDomain:
    """Return what NVLink joins beyond a node.

    Args:
        gpu: whose record speaks where nothing else does.
        gpus_per_node: the GPUs in use.
        given: the GPUs of a domain, as the request has it.
        network: what the request calls the network; a rack of NVLink is one too.
        instance: a cloud's machine.
        topology: of a node, whose probe may have found the rack.

    Raises:
        InvalidInputError: nodes do not fill the domain that was given.
    """
    rack = rack_record(network)
    said, assumption = given, ""
    if said is None:
        said = rack.domain_gpus if rack else instance.nvlink_domain_gpus if instance else 0
    elif said % gpus_per_node:
        raise InvalidInputError(
            f"nodes of {gpus_per_node} GPUs do not fill an NVLink domain of {said}",
            hint=nearest_multiples(said, gpus_per_node),
            field=FIELD,
        )
    if given is None and not said and topology and topology.fabric_cluster:
        is_rack = topology.fabric_cluster != NO_FABRIC_CLUSTER
        said = interconnect().nvlink.largest_domain_gpus if is_rack else gpus_per_node
    if not said and instance is None:
        said = gpu.nvlink_domain_gpus
        assumption = f"NVLink joins the nodes of a rack, {said} GPUs, as {gpu.name} is sold"
    if said <= gpus_per_node:
        return NvlinkDomain()
    return NvlinkDomain(gpus=said, link=_link(gpu, said, rack), assumption=assumption)


def _link(gpu: Gpu, gpus: int, rack: records.LinkRecord | None) -> Link:
    """Return what a group sees that leaves its node: all of the GPU's own links, or the rack's."""
    if gpu.nvlink_fabric == "nvswitch":
        largest = interconnect().nvlink.largest_domain_gpus
        return intra_node_link(gpu, min(gpus, largest), None)
    link = link_inside(rack.name if rack else interconnect().nvlink.rack_link)
    return replace(link, system=system_of(gpu, "nvswitch"))
