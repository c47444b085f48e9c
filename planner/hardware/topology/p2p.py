"""The table that `nvidia-smi topo -p2p` prints -> between which GPUs peer-to-peer copies work."""

import re
from collections.abc import Mapping

from planner.domain.topology import Pair, Topology, TopologyFinding
from planner.hardware.topology.refusal import refusal
from planner.hardware.topology.table import MatrixTable
from planner.hardware.topology.words import some_pairs

_STATUSES = {
    "OK": "status OK",
    "CNS": "chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "topology not supported",
    "NS": "not supported",
    "DR": "disabled by a registry key",
    "U": "unknown",
}
"""Every word of a cell, as the tool's legend explains it."""

_ASKED = re.compile(r"-p2p\s+([a-z])")


def is_p2p(table: MatrixTable) -> bool:
    """Return whether a table's cells are peer-to-peer statuses."""
    return bool(table.words & _STATUSES.keys())


def read_p2p(table: MatrixTable) -> Topology:
    """Return which pairs can copy to each other; a pair needs both directions.

    `-p2p r` and `-p2p w` ask about PCIe reads and writes. `-p2p n` asks about NVLink: its OK is
    one here too, its failures say nothing. Atomics (`-p2p a`) are left out.

    Raises:
        InvalidInputError: a cell cannot be read.
    """
    asked = _ASKED.search(table.title)
    statuses = _statuses(table) if not asked or asked[1] in "rwnp" else {}
    if asked and asked[1] == "n":
        statuses = {pair: status for pair, status in statuses.items() if status == "OK"}
    blocked = {pair: status for pair, status in statuses.items() if status != "OK"}
    return Topology(
        num_gpus=table.num_gpus,
        nvlink={},
        pcie={},
        peer_to_peer={pair: status == "OK" for pair, status in statuses.items()},
        findings=(_blocked(blocked, len(statuses)),) if blocked else (),
    )


def _statuses(table: MatrixTable) -> dict[Pair, str]:
    """Return the status of each pair that has a known one; a failure wins over OK."""
    statuses: dict[Pair, str] = {}
    for gpu in range(table.num_gpus):
        row = table.rows.get(f"GPU{gpu}")
        for peer, cell in enumerate(row.cells[: table.num_gpus] if row else ()):
            pair = (min(gpu, peer), max(gpu, peer))
            if row and cell and cell not in _STATUSES and (gpu != peer or cell != "X"):
                wrong = f"line {row.number}: cannot read {cell[:20]!r} in a peer-to-peer table"
                raise refusal(wrong)
            if cell and gpu != peer and cell != "U" and statuses.get(pair, "OK") == "OK":
                statuses[pair] = cell
    return statuses


def _blocked(blocked: Mapping[Pair, str], num_read: int) -> TopologyFinding:
    words = sorted(set(blocked.values()))
    return TopologyFinding(
        code="TOP010",
        message=f"peer-to-peer copies do not work for {len(blocked)} of {num_read} pairs"
        f" ({some_pairs(blocked)}): {', '.join(f'{w}, {_STATUSES[w]}' for w in words)}",
    )
