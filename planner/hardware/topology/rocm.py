"""`rocm-smi --showtopo` -> how AMD GPUs are connected."""

import re
from collections.abc import Iterable, Sequence

from planner.domain.topology import MOST_GPUS, Pair, Topology, TopologyFinding
from planner.hardware.topology.clean import Line
from planner.hardware.topology.refusal import refusal
from planner.hardware.topology.table import MatrixTable
from planner.hardware.topology.words import some_pairs

_NODE = re.compile(r"\s*GPU\[([0-9]{1,6})\]\s*:\s*\(Topology\) Numa Node:\s*([0-9]{1,4})\s*$")
_XGMI_WEIGHTS = {"15", "30", "45"}
"""15 per hop, as the kernel driver weighs it; a PCIe hop costs 20."""
_WITHIN_SOCKET_HOPS = 2
"""GPU to CPU to GPU; a third hop crosses to the other socket."""
_WITHIN_SOCKET_WEIGHT = 40


def read_rocm(tables: Sequence[MatrixTable]) -> Topology:
    """Return XGMI pairs as one link each and the others as PHB (one socket) or SYS (two).

    rocm-smi prints link types, hops and weights, not how many links a pair has: an MI300X has one
    per pair, the two halves of an MI250X four. Counted as one, a pair is never flattered.

    Raises:
        InvalidInputError: two cells of a pair disagree, or the tables are of different nodes.
    """
    num_gpus = {table.num_gpus for table in tables}
    if len(num_gpus) > 1:
        raise refusal("the tables of rocm-smi have different numbers of GPUs")
    weights, hops, types, access = (
        _cells(tables, word) for word in ("weight", "hops", "link type", "accessib")
    )
    kinds = types or {
        pair: "XGMI" if weight in _XGMI_WEIGHTS else "PCIE" for pair, weight in weights.items()
    }
    xgmi = {pair: 1 for pair, kind in kinds.items() if kind == "XGMI"}
    routed = {pair for pair in xgmi if weights.get(pair, "15") != "15"}
    return Topology(
        num_gpus=num_gpus.pop(),
        nvlink=xgmi,
        pcie={
            pair: _class(hops.get(pair, ""), weights.get(pair, ""))
            for pair, kind in kinds.items()
            if kind == "PCIE"
        },
        peer_to_peer={pair: word == "True" for pair, word in access.items()},
        findings=(_counted_as_one(xgmi, routed),) if xgmi else (),
    )


def read_rocm_numa(lines: Iterable[Line]) -> Topology | None:
    """Return the NUMA nodes that rocm-smi lists; None where it does not.

    Raises:
        InvalidInputError: a GPU's number is beyond any node.
    """
    nodes: dict[int, int] = {}
    for line in lines:
        if match := _NODE.match(line.text):
            if int(match[1]) >= MOST_GPUS:
                wrong = f"line {line.number}: GPU {match[1]}; a node has at most {MOST_GPUS}"
                raise refusal(wrong)
            nodes[int(match[1])] = int(match[2])
    return Topology(num_gpus=max(nodes) + 1, nvlink={}, pcie={}, numa=nodes) if nodes else None


def _cells(tables: Iterable[MatrixTable], word: str) -> dict[Pair, str]:
    """Return each pair's cell of the table with this word in its heading; {} without one."""
    cells: dict[Pair, str] = {}
    for table in tables:
        if word not in table.title.lower():
            continue
        for gpu in range(table.num_gpus):
            row = table.rows.get(f"GPU{gpu}")
            for peer, cell in enumerate(row.cells[: table.num_gpus] if row else ()):
                pair = (min(gpu, peer), max(gpu, peer))
                if gpu == peer or cell is None:
                    continue
                if row and cells.setdefault(pair, cell) != cell:
                    raise refusal(
                        f"line {row.number}: GPU{gpu}-GPU{peer} reads {cell[:20]!r},"
                        f" and {cells[pair][:20]!r} the other way"
                    )
    return cells


def _class(hops: str, weight: str) -> str:
    if hops.isdigit():
        return "PHB" if int(hops) <= _WITHIN_SOCKET_HOPS else "SYS"
    return "PHB" if weight.isdigit() and int(weight) <= _WITHIN_SOCKET_WEIGHT else "SYS"


def _counted_as_one(xgmi: Iterable[Pair], routed: set[Pair]) -> TopologyFinding:
    through = f"; {some_pairs(routed)} pass through other GPUs" if routed else ""
    return TopologyFinding(
        code="TOP009",
        message=f"{len(list(xgmi))} XGMI pairs count as one link each, as rocm-smi does not print"
        f" how many there are{through}",
    )
