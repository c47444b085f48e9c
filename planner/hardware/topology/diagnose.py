"""Topology -> what in it is missing, implausible or easily misread."""

from collections.abc import Iterator

from planner.catalog.interconnect import interconnect
from planner.domain.topology import Topology, TopologyFinding
from planner.hardware.topology.words import gpu_span, some_pairs

_NEAR = {"PIX", "PXB"}
_PROVES_NOTHING = 2
"""GPUs, a pair, whose one class may well be its own."""


def diagnose(topology: Topology) -> Iterator[TopologyFinding]:
    """Yield the findings that follow from the connections themselves."""
    yield from _split_by_mig(topology)
    num_pairs = topology.num_gpus * (topology.num_gpus - 1) // 2
    if missing := topology.missing_pairs:
        yield TopologyFinding(
            code="TOP002",
            message=f"how {len(missing)} of {num_pairs} pairs of GPUs are connected was not in"
            f" what was read: {some_pairs(missing)}",
        )
    if topology.pcie and not topology.nvlink:
        yield from _flat(topology)
    yield from _expected_nvlink(topology)
    yield from _links_up(topology)
    nearest = {nic.pcie[gpu] for nic in topology.nics for gpu in nic.pcie}
    if nearest == {"SYS"}:
        yield TopologyFinding(
            code="TOP012",
            message=f"SYS to every GPU is what {_adapters(len(topology.nics))}",
        )


def _split_by_mig(topology: Topology) -> Iterator[TopologyFinding]:
    """Yield that processes get parts of a GPU, and that plans are for whole ones."""
    for gpu, instances in sorted(topology.mig_instances.items()):
        into = f" into {instances} instance{'s' if instances > 1 else ''}" if instances else ""
        yield TopologyFinding(
            code="PRB004",
            message=f"GPU{gpu} is split by MIG{into}: a process gets one of them with its share"
            " of the memory, and neither NVLink nor peer-to-peer copies between them; plans are"
            " for the whole GPU, with MIG off",
        )


def _adapters(count: int) -> str:
    return f"{count} network adapters read" if count > 1 else "the network adapter reads"


def _flat(topology: Topology) -> Iterator[TopologyFinding]:
    """Yield that one class for all pairs says less than it seems to."""
    pairs = f"all {len(topology.pcie)} pairs" if len(topology.pcie) > 1 else "the pair"
    classes = set(topology.pcie.values())
    if classes == {"PHB"} and topology.num_gpus > _PROVES_NOTHING:
        yield TopologyFinding(
            code="TOP004",
            message=f"{pairs} read PHB: in a virtual machine that says nothing about the wiring"
            " beneath",
        )
    nodes = topology.numa_nodes
    if classes == {"SYS"} and len(nodes) > 1 and any(len(gpus) > 1 for gpus in nodes.values()):
        split = ", ".join(f"{gpu_span(gpus)} on node {node}" for node, gpus in nodes.items())
        yield TopologyFinding(
            code="TOP011",
            message=f"{pairs} read SYS, within NUMA nodes too; the split is taken from the NUMA"
            f" column: {split}",
        )


def _expected_nvlink(topology: Topology) -> Iterator[TopologyFinding]:
    """Yield that eight GPUs look like an SXM baseboard whose NVLink is gone."""
    is_hidden = any(finding.code == "TOP003" for finding in topology.findings)
    if topology.num_gpus != interconnect().nvlink.baseboard_gpus or topology.nvlink or is_hidden:
        return
    if any("SXM" in name for name in topology.gpu_names) and topology.pcie:
        reason = f"8 GPUs of the name {topology.gpu_names[0]}"
    elif _has_adapter_each(topology):
        reason = "8 GPUs, each with a network adapter of its own"
    else:
        return
    yield TopologyFinding(
        code="TOP005",
        message=f"{reason}, and no NVLink between any two: if these are SXM GPUs, NVLink is down",
    )


def _has_adapter_each(topology: Topology) -> bool:
    """Return whether the GPUs that show any adapters (most of them) have a near one each."""
    near = [topology.nics_near(gpu)[:1] for gpu in range(topology.num_gpus)]
    first = [(nic.name, nic.pcie[gpu]) for gpu, nics in enumerate(near) for nic in nics]
    names = {name for name, pcie in first if pcie in _NEAR}
    return len(names) == len(first) > topology.num_gpus // 2


def _links_up(topology: Topology) -> Iterator[TopologyFinding]:
    """Yield that active links and the matrix disagree."""
    if not topology.nvlink and not topology.pcie:
        return
    most = dict.fromkeys(topology.active_nvlinks, 0)
    for pair, links in topology.nvlink.items():
        for gpu in pair:
            if gpu in most:
                most[gpu] = max(most[gpu], links)
    unseen = [gpu for gpu, up in topology.active_nvlinks.items() if up and not most[gpu]]
    down = [gpu for gpu, up in topology.active_nvlinks.items() if up < most[gpu]]
    if unseen:
        links = topology.active_nvlinks[unseen[0]]
        yield TopologyFinding(
            code="TOP008",
            message=f"{gpu_span(unseen)}: {links} NVLinks are up, and the matrix shows none",
        )
    if down:
        yield TopologyFinding(
            code="TOP008",
            message=f"{gpu_span(down)}: the matrix shows NV{most[down[0]]}, and"
            f" {topology.active_nvlinks[down[0]]} links are up",
        )
