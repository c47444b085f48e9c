"""Whatever people paste -> one topology: several tools' outputs may stand in one text."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from planner.core.errors import InvalidInputError
from planner.domain.topology import LARGEST_TEXT, Pair, Topology, TopologyFinding
from planner.hardware.topology.clean import Line, clean
from planner.hardware.topology.diagnose import diagnose
from planner.hardware.topology.file import is_file, read_file
from planner.hardware.topology.gpu_lists import read_devices, read_gpu_table
from planner.hardware.topology.matrix import read_matrix
from planner.hardware.topology.p2p import is_p2p, read_p2p
from planner.hardware.topology.refusal import refusal
from planner.hardware.topology.rocm import read_rocm, read_rocm_numa
from planner.hardware.topology.table import MatrixTable, find_tables

_FAILURES = (
    (
        re.compile(r"not supported on (?:this machine|the given system)", re.IGNORECASE),
        "rocm-smi could not read the topology",
        "run `rocm-smi --showtopo` on the host, with the driver's own version",
    ),
    (
        re.compile(r"NVIDIA-SMI has failed|Failed to initialize NVML|couldn't communicate with"),
        "nvidia-smi did not reach the driver",
        "run it on a node of the job, where `nvidia-smi` alone lists the GPUs",
    ),
    (
        re.compile(r"No devices were found"),
        "nvidia-smi found no GPU",
        "run it on a node of the job, where `nvidia-smi` alone lists the GPUs",
    ),
    (
        re.compile(r"(?:nvidia|rocm)-smi.{0,20}(?:not found|not recognized)"),
        "the tool is not there",
        "run it on a node of the job",
    ),
)
"""What a line says, what that means, and what to do."""
_SHOWN = 80


def parse_topology(text: str) -> Topology:
    """Read what is pasted about the GPUs of one node, in any order and with text around it.

    Understood: `nvidia-smi topo -m`, `topo -p2p`, `nvlink -s`, `-L`, `--query-gpu=... --format=csv`;
    `rocm-smi --showtopo`; and the file that `planner probe` writes.

    Raises:
        InvalidInputError: nothing of these is there, or a line of it cannot be read; says which.
    """
    if len(text) > LARGEST_TEXT:
        raise refusal(f"the topology has more than {LARGEST_TEXT:,} characters")
    if is_file(text):
        return read_file(text)
    lines = clean(text)
    tables = find_tables(lines)
    matrices = tuple(_connections([table for table in tables if table.rows]))
    lists = (read_devices(lines), read_gpu_table(lines), read_rocm_numa(lines))
    details = [part for part in lists if part]
    if not matrices and not details:
        raise _tool_failure(lines) or _nothing(tables)
    topology = _deduced(_combined(matrices, details))
    findings = (*topology.findings, *diagnose(topology))
    return replace(topology, findings=tuple(sorted(findings, key=lambda finding: finding.code)))


def _connections(tables: Sequence[MatrixTable]) -> Iterator[Topology]:
    """Yield what the tables say, connections first."""
    rocm = [table for table in tables if table.is_rocm]
    others = [table for table in tables if not table.is_rocm]
    peers = [table for table in others if is_p2p(table)]
    matrices = [table for table in others if not is_p2p(table)]
    if rocm and matrices:
        raise refusal(
            "the paste holds tables of rocm-smi and of nvidia-smi",
            hint="paste the outputs of one node",
        )
    if rocm:
        yield read_rocm(rocm)
    if matrices:
        yield _one_of([read_matrix(table) for table in matrices])
    yield from (read_p2p(table) for table in peers)


def _tool_failure(lines: Iterable[Line]) -> InvalidInputError | None:
    for line in lines:
        text = " ".join(line.tokens)
        for said, what, hint in _FAILURES:
            if said.search(text[:1000]):
                shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN].rstrip('. ')} ..."
                return refusal(f"line {line.number}: {what}: {shown}", hint=hint)
    return None


def _nothing(tables: Sequence[MatrixTable]) -> InvalidInputError:
    if tables:
        return refusal(f"the topology has 0 rows for {tables[0].num_gpus} GPUs")
    return refusal("the topology has no header line with GPU0 in it")


def _one_of(matrices: Sequence[Topology]) -> Topology:
    chosen = next((matrix for matrix in matrices if matrix.nvlink), matrices[0])
    others = [m for m in matrices if (m.nvlink, m.pcie) != (chosen.nvlink, chosen.pcie)]
    if not others:
        return chosen
    which = "first" if chosen is matrices[0] else "first with NVLink"
    finding = TopologyFinding(
        code="TOP006",
        message=f"the paste holds {len(matrices)} matrices that differ; the {which} was read"
        f" ({chosen.num_gpus} GPUs)",
    )
    return replace(chosen, findings=(*chosen.findings, finding))


def _combined(matrices: Sequence[Topology], details: Sequence[Topology]) -> Topology:
    """Return one topology of all parts; the first that knows something wins.

    Args:
        matrices: parts that show every GPU of the node.
        details: lists that may leave GPUs out.

    Raises:
        InvalidInputError: the parts are not of one node.
    """
    parts = (*matrices, *details)
    num_gpus = max(part.num_gpus for part in matrices or details)
    strangers = [part.num_gpus for part in matrices if part.num_gpus < num_gpus]
    strangers += [part.num_gpus for part in details if part.num_gpus > num_gpus]
    if strangers:
        raise refusal(
            f"one output shows {num_gpus} GPUs and another {strangers[0]}",
            hint="paste the outputs of one node",
        )
    merged: dict[str, Any] = {
        name: _first_known(getattr(part, name) for part in parts) for name in _MERGED
    }
    return Topology(
        num_gpus=num_gpus,
        nvlink=parts[0].nvlink,
        pcie=parts[0].pcie,
        nics=next((part.nics for part in parts if part.nics), ()),
        gpu_names=_names(num_gpus, parts),
        peer_to_peer=_in_both_directions(parts),
        findings=tuple(dict.fromkeys(finding for part in parts for finding in part.findings)),
        **merged,
    )


_MERGED = (
    "numa",
    "active_nvlinks",
    "nvlink_bytes_per_second",
    "memory_bytes",
    "pcie_generation",
    "pcie_lanes",
    "mig_instances",
)


def _first_known(maps: Iterable[dict[int, Any]]) -> dict[int, Any]:
    known: dict[int, Any] = {}
    for facts in maps:
        known = {**facts, **known}
    return known


def _names(num_gpus: int, parts: Iterable[Topology]) -> tuple[str, ...]:
    known = _first_known(
        {gpu: name for gpu, name in enumerate(part.gpu_names) if name} for part in parts
    )
    return tuple(known[gpu] for gpu in range(num_gpus)) if len(known) == num_gpus else ()


def _in_both_directions(parts: Iterable[Topology]) -> dict[Pair, bool]:
    """Return which pairs can copy: reads and writes are asked for in two outputs."""
    works: dict[Pair, bool] = {}
    for part in parts:
        for pair, can in part.peer_to_peer.items():
            works[pair] = works.get(pair, True) and can
    return works


def _deduced(topology: Topology) -> Topology:
    """Join the only two GPUs with active links, where no matrix was read."""
    if topology.nvlink or topology.pcie:
        return topology
    match sorted((gpu, links) for gpu, links in topology.active_nvlinks.items() if links):
        case [(low, links), (high, others)] if links == others:
            finding = TopologyFinding(
                code="TOP007",
                message=f"GPU{low} and GPU{high} alone have NVLinks, {links} each:"
                " taken to join these two",
            )
            found = (*topology.findings, finding)
            return replace(topology, nvlink={(low, high): links}, findings=found)
    return topology
