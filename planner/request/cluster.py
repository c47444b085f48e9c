"""The cluster part of a request: its way to a Cluster."""

from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from planner.catalog import records
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.cluster import Cluster, Gpu, Instance, Link
from planner.domain.topology import Topology
from planner.hardware import group_links, mixed_gpus, placement
from planner.hardware.gpu_of_topology import gpu_of_topology, strange_links
from planner.hardware.named_links import (
    BETWEEN,
    link_between,
    link_inside,
    own_nvlink,
    pcie_slot,
    rack_record,
    single_port,
)
from planner.hardware.usual_network import usual_network, usual_node
from planner.request.nvlink_domain import FIELD as DOMAIN
from planner.request.nvlink_domain import NvlinkDomain, nvlink_domain
from planner.request.remarks import Assumption, Remarks
from planner.request.sections import ClusterRequest, InterNodeLink, IntraNodeLink

ASSUMED_GPU = "a100-sxm-80gb"
ASSUMED_PCIE_GPU = "a100-pcie-80gb"
_FULL_NODE = 8
"""GPUs of a node where only the most of all are said: as HGX boards and the largest servers hold."""


_FEWEST_WITH_AN_ODD_ONE = 2
_MUCH_FASTER = 2.0
"""Times the bandwidth of all GPUs, from which on those without the odd one are planned too."""


@frozen
class ResolvedCluster:
    """A cluster with every name looked up and every gap filled."""

    cluster: Cluster
    assumptions: tuple[Assumption, ...]
    notes: tuple[str, ...]


def resolve_cluster(
    wanted: ClusterRequest, own_gpu: Gpu | None = None, max_gpus: int | None = None
) -> ResolvedCluster:
    """Return the cluster that a request describes, with what had to be assumed.

    Args:
        wanted: as the request has it.
        own_gpu: a card that no record has; a request means it by its name.
        max_gpus: the most GPUs that a plan may take, more than the cluster's own: its nodes have a network then.

    Raises:
        PlannerError: a name is unknown, or the parts contradict each other.
    """
    remarks = Remarks()
    instance = records.instance(wanted.instance) if wanted.instance else None
    topology_given = None if wanted.topology is None else _parsed(wanted.topology)
    if own_gpu is not None and wanted.gpu == own_gpu.name:
        gpu, listed = own_gpu, 0
    else:
        gpu, listed = _gpu(wanted, instance, topology_given, remarks)
    gpus_per_node = _gpus_per_node(
        wanted, instance, listed or _num_shown(wanted, topology_given), max_gpus, remarks
    )
    if instance is None and topology_given is None and wanted.intra_node is None:
        wanted = _in_nodes(wanted, gpu, gpus_per_node, remarks)
        gpus_per_node = wanted.gpus_per_node
    if isinstance(wanted.intra_node, str):
        own = own_nvlink(wanted.intra_node, gpu, gpus_per_node)
        wanted = wanted.model_copy(update={"intra_node": own})
    topology, link = _links_inside(wanted, instance, gpu, topology_given, remarks)
    gpu = _limited(gpu, wanted.gpu_power_watts, remarks)
    domain = _domain(wanted, gpu, gpus_per_node, topology_given)
    in_use, joined = gpus_per_node * wanted.nodes, wanted.nvlink_domain_gpus or 0
    if joined > max(in_use, gpu.nvlink_domain_gpus):
        effect = "nvlink_domain_gpus changes nothing" if wanted.nodes == 1 else "it joins them all"
        remarks.notes.append(
            f"an NVLink domain of {joined:,} GPUs is more than the {in_use:,} in use, so {effect}"
        )
    cluster = Cluster(
        gpu=gpu,
        gpus_per_node=gpus_per_node,
        nodes=wanted.nodes,
        **_inside_a_node(gpu, gpus_per_node, topology, link, peer_to_peer=wanted.peer_to_peer),
        nvlink_domain_gpus=domain.gpus,
        domain_link=domain.link,
        topology=topology,
        instance=_priced_as(instance, gpu),
        host_memory_bytes=instance.host_memory_bytes if instance else 0.0,
        inter_node=None,
    )
    if wanted.nodes > 1 and domain.assumption:
        remarks.assume(domain.assumption, DOMAIN)
    may_grow = (max_gpus or 0) > cluster.world_size
    if wanted.nodes > 1 or may_grow:
        is_needed = cluster.needs_network or may_grow
        network = _inter_node(wanted, cluster, remarks, is_needed=is_needed)
        cluster = replace(cluster, inter_node=network)
    elif wanted.inter_node is not None:
        _read_network(wanted.inter_node, gpus_per_node)
        remarks.notes.append("one node has no network to others, so inter_node changes nothing")
    larger = _larger_gpus(wanted) or _without_the_odd_one(wanted, cluster)
    cluster = replace(cluster, larger_gpus=larger)
    return ResolvedCluster(
        cluster=cluster, assumptions=tuple(remarks.assumptions), notes=tuple(remarks.notes)
    )


def _parsed(text: str) -> Topology:
    from planner.hardware.topology import parse_topology

    return parse_topology(text)


def _priced_as(instance: Instance | None, gpu: Gpu) -> Instance | None:
    if instance is None or instance.gpu == gpu.name:
        return instance
    return replace(instance, usd_per_hour=0.0, price_date="", price_source="")


def _limited(gpu: Gpu, watts: int | None, remarks: Remarks) -> Gpu:
    """Return the GPU at a power limit; one whose own is not known keeps its rates, and that is said."""
    if watts is None:
        return gpu
    if not gpu.tdp_watts:
        remarks.notes.append(
            f"the power of {gpu.name} is not known, so a limit of {watts} W changes nothing"
        )
    elif watts > gpu.tdp_watts:
        most = f"{gpu.name} draws {gpu.tdp_watts:g} W at the most"
        remarks.notes.append(f"{most}, so a limit of {watts} W changes nothing")
    return replace(gpu, limit_watts=float(min(watts, gpu.tdp_watts or watts)))


def _larger_gpus(wanted: ClusterRequest) -> Cluster | None:
    """Return the cluster without the least model of a list of GPUs; None where there is one model."""
    if wanted.gpu is None or not mixed_gpus.is_list(wanted.gpu) or wanted.topology is not None:
        return None
    gpu_counts = mixed_gpus.read_gpu_counts(wanted.gpu)
    if len(gpu_counts) == 1:
        return None
    larger = ",".join(
        f"{each.gpu.name}:{each.count}" for each in mixed_gpus.larger_gpus(gpu_counts)
    )
    fields = {name: getattr(wanted, name) for name in wanted.model_fields_set - {"gpus_per_node"}}
    return resolve_cluster(ClusterRequest(**{**fields, "gpu": larger})).cluster


def _without_the_odd_one(wanted: ClusterRequest, cluster: Cluster) -> Cluster | None:
    """Return a node without the GPU whose links hold all others back; None where there is no such GPU."""
    gpus = cluster.gpus_per_node
    if cluster.topology is None or cluster.nodes > 1 or gpus <= _FEWEST_WITH_AN_ODD_ONE:
        return None
    inside = _inside_a_node(
        cluster.gpu, gpus - 1, cluster.topology, wanted.intra_node, peer_to_peer=wanted.peer_to_peer
    )
    others = replace(cluster, gpus_per_node=gpus - 1, **inside)
    faster = others.intra_node.bytes_per_second / cluster.intra_node.bytes_per_second
    return others if faster >= _MUCH_FASTER else None


def _inside_a_node(
    gpu: Gpu,
    gpus_per_node: int,
    topology: Topology | None,
    link: str | IntraNodeLink | None,
    *,
    peer_to_peer: bool | None,
) -> dict[str, Any]:
    """Return the fields of a Cluster that say how the GPUs of a node are linked and ordered."""
    slot = pcie_slot(link) if isinstance(link, str) and peer_to_peer is False else None
    if slot is not None:  # without copies from card to card the lanes alone do not say the rate
        generation, lanes = slot
        gpu = replace(gpu, pcie_generation=generation, pcie_lanes=lanes)
    elif link is not None:
        return {"intra_node": link_inside(_plain_link(link), gpu)}
    order = placement.order(topology, gpus_per_node, gpu, peer_to_peer=peer_to_peer)
    links = (gpu, gpus_per_node, topology, order)
    return {
        "intra_node": group_links.intra_node_link(*links, peer_to_peer=peer_to_peer),
        "group_links": group_links.group_links(*links, peer_to_peer=peer_to_peer),
        "gpu_order": order,
    }


def _num_shown(wanted: ClusterRequest, topology_given: Topology | None) -> int:
    is_said = "gpus_per_node" in wanted.model_fields_set or wanted.instance
    return 0 if topology_given is None or is_said else topology_given.num_gpus


def _gpu(
    wanted: ClusterRequest,
    instance: Instance | None,
    topology_given: Topology | None,
    remarks: Remarks,
) -> tuple[Gpu, int]:
    """Return the GPU to plan for, and how many a list of GPUs names (0 without a list)."""
    if wanted.gpu is None and instance is None and topology_given and topology_given.gpu_names:
        return _gpu_of_names(topology_given.gpu_names, remarks), 0
    if wanted.gpu is None:
        shown = gpu_of_topology(topology_given) if topology_given and instance is None else None
        if shown:
            gpu, others = shown
            remarks.assume(f"{gpu.name} GPUs, as NVLink joins them so{others}", "cluster.gpu")
            return gpu, 0
        if instance:
            return records.gpu(instance.gpu), 0
        return _assumed_gpu(topology_given, remarks), 0
    if mixed_gpus.is_list(wanted.gpu):
        gpu_counts = mixed_gpus.read_gpu_counts(wanted.gpu)
        gpu, listed = (
            mixed_gpus.governing_gpu(gpu_counts),
            sum(gpu_count.count for gpu_count in gpu_counts),
        )
        if len(gpu_counts) > 1:
            remarks.notes.append(mixed_gpus.waste(gpu_counts))
    else:
        gpu, listed = records.gpu(wanted.gpu), 0
        strange = strange_links(gpu, topology_given) if topology_given else ""
        remarks.notes.extend([strange] if strange else [])
    if instance and gpu.name != instance.gpu:
        unpriced = ", so its price is not counted" if instance.usd_per_hour else ""
        remarks.notes.append(
            f"{gpu.name} as given, not the {instance.gpu} of {instance.name}{unpriced}"
        )
    return gpu, listed


def _assumed_gpu(topology_given: Topology | None, remarks: Remarks) -> Gpu:
    name, why = assumed_gpu(topology_given)
    remarks.assume(f"{name}, as no GPU was named and {why}", "cluster.gpu")
    return records.gpu(name)


def assumed_gpu(topology_given: Topology | None) -> tuple[str, str]:
    """Return the GPU where nothing names one, and why: a card for PCIe where a topology shows no other links."""
    if topology_given and topology_given.pcie:
        return ASSUMED_PCIE_GPU, "the topology shows no NVLink"
    return ASSUMED_GPU, "none was found"


def _gpu_of_names(names: tuple[str, ...], remarks: Remarks) -> Gpu:
    gpu_counts = mixed_gpus.read_gpu_counts(",".join(names))
    if len(gpu_counts) > 1:
        remarks.notes.append(mixed_gpus.waste(gpu_counts))
    return mixed_gpus.governing_gpu(gpu_counts)


def _gpus_per_node(
    wanted: ClusterRequest,
    instance: Instance | None,
    listed: int,
    max_gpus: int | None,
    remarks: Remarks,
) -> int:
    is_given = "gpus_per_node" in wanted.model_fields_set
    count = wanted.gpus_per_node
    if listed and is_given and count != listed:
        raise InvalidInputError(
            f"the list of GPUs names {listed}, but --gpus is {count}",
            hint=f"leave --gpus out, or use --gpus {listed}",
            field="cluster.gpus_per_node",
        )
    if listed:
        count = listed
    elif instance and not is_given:
        count = instance.gpus_per_node
    elif not is_given:
        count = min(max_gpus or 1, _FULL_NODE)
        up_to = "up to " if max_gpus else ""
        remarks.assume(f"{up_to}{_count_text(count)} per node", "cluster.gpus_per_node")
    if instance and count > instance.gpus_per_node:
        raise InvalidInputError(
            f"{instance.name} has {_count_text(instance.gpus_per_node)}, not {count}",
            hint=f"at most --gpus {instance.gpus_per_node}; --nodes N takes more of them",
            field="cluster.gpus_per_node",
        )
    if instance and count < instance.gpus_per_node:
        remarks.notes.append(f"{count} of the {instance.gpus_per_node} GPUs of {instance.name}")
    return count


def _in_nodes(wanted: ClusterRequest, gpu: Gpu, gpus: int, remarks: Remarks) -> ClusterRequest:
    """Return the cluster with more GPUs than a node has as the GPUs in all, in nodes of the usual size.

    Raises:
        InvalidInputError: a number of nodes is said too, or they make no such nodes.
    """
    usual, largest = usual_node(gpu.name)
    if gpus <= max(largest, gpu.nvlink_domain_gpus, wanted.nvlink_domain_gpus or 0):
        return wanted.model_copy(update={"gpus_per_node": gpus})
    if wanted.nodes == 1 and gpus % usual == 0:
        nodes = gpus // usual
        text = f"{gpus} GPUs in all, on {nodes} nodes of {usual}, as no node with {gpu.name} has {gpus}"
        remarks.assume(text, "cluster.gpus_per_node")
        return wanted.model_copy(update={"gpus_per_node": usual, "nodes": nodes})
    size = max(size for size in range(1, usual + 1) if gpus % size == 0)
    readings = [
        f"--gpus {size} --nodes {total // size} for {total} GPUs in all"
        for total in dict.fromkeys((gpus, gpus * wanted.nodes))
    ]
    raise InvalidInputError(
        f"no node with {gpu.name} has {gpus} GPUs: they usually have {usual}",
        hint=f"{', '.join(readings)}; a node of your own: --intra-node LINK or --topology FILE",
        field="cluster.gpus_per_node",
    )


def _count_text(gpus: int) -> str:
    return f"{gpus} GPU{'s' if gpus > 1 else ''}"


def _links_inside(
    wanted: ClusterRequest,
    instance: Instance | None,
    gpu: Gpu,
    topology_given: Topology | None,
    remarks: Remarks,
) -> tuple[Topology | None, str | IntraNodeLink | None]:
    """Return a node's topology, or else a named or measured link, or neither for the GPU's own."""
    link = wanted.intra_node
    if instance and (topology_given or link is not None):
        remarks.notes.append(f"the links inside a node as given, not those of {instance.name}")
    elif instance and gpu.name == instance.gpu:
        topology_given = _parsed(instance.topology) if instance.topology else None
        link = instance.intra_node or None
    if topology_given:
        remarks.notes.extend(
            f"{finding.message} ({finding.code})" for finding in topology_given.findings
        )
    if topology_given and not topology_given.missing_pairs:
        return topology_given, None
    if topology_given:
        remarks.notes.append(
            f"the topology does not say how {len(topology_given.missing_pairs)} pairs of GPUs are joined,"
            f" so the usual links of {gpu.name} are taken"
        )
    if link is not None and wanted.peer_to_peer is not None and not _is_slot(link):
        remarks.notes.append("peer_to_peer changes nothing where the link inside a node is given")
    return None, link


def _is_slot(link: str | IntraNodeLink | None) -> bool:
    return isinstance(link, str) and pcie_slot(link) is not None


def _domain(
    wanted: ClusterRequest, gpu: Gpu, gpus_per_node: int, topology: Topology | None
) -> NvlinkDomain:
    """Return the GPUs that NVLink joins beyond a node; none where NVLink is switched off."""
    if wanted.peer_to_peer is False:
        return NvlinkDomain()
    return nvlink_domain(
        gpu,
        gpus_per_node,
        given=wanted.nvlink_domain_gpus,
        network=wanted.inter_node,
        instance=records.instance(wanted.instance) if wanted.instance else None,
        topology=topology,
    )


def _inter_node(
    wanted: ClusterRequest, cluster: Cluster, remarks: Remarks, *, is_needed: bool
) -> Link:
    """Return the network between nodes: as asked, the instance's, or what such nodes are sold with.

    A rack that NVLink joins is no network: what joins racks is then as if nothing had been said, and
    an assumption only where the job needs it.
    """
    given, instance = wanted.inter_node, cluster.instance
    named = None if given is None else _read_network(given, cluster.gpus_per_node)
    if named is None:
        link, assumed = usual_network(cluster.gpu, cluster.gpus_per_node, instance)
    else:
        link = named
        assumed = single_port(given, cluster.gpus_per_node) if isinstance(given, str) else ""
        if instance:
            remarks.notes.append(f"the network as given, not that of {instance.name}")
    if assumed and is_needed:
        remarks.assume(assumed, BETWEEN)
    return link


def _read_network(given: str | InterNodeLink, gpus_per_node: int) -> Link | None:
    """Return the network that was named or measured; None for a rack, which NVLink joins."""
    return None if rack_record(given) else link_between(_plain_link(given), gpus_per_node)


def _plain_link(link: str | BaseModel) -> str | dict[str, float]:
    return link if isinstance(link, str) else link.model_dump()
