"""A probed machine for a person and for a program."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from textwrap import fill
from typing import Any

from planner.core.units import format_bytes
from planner.domain.topology import PCIE_CLASSES, Topology
from planner.hardware.probe.machine import Machine, ProbedGpu

WIDTH = 100
_HEADER = ("index", "name", "memory", "compute", "PCIe", "NVLink", "NUMA", "MIG")

ColumnsText = Callable[[Sequence[Sequence[str]]], str]


def describe(machine: Machine, table: ColumnsText) -> str:
    """Return a machine as text: its GPUs, how they are connected, what to know.

    Args:
        machine: what to show.
        table: how rows become aligned columns (`planner.report.values.columns_text`).
    """
    count = len(machine.gpus)
    driver = machine.driver_version or "of unknown version"
    sections = [
        f"{count} GPU{'s' if count > 1 else ''}, driver {driver}",
        table((_HEADER, *(_row(gpu) for gpu in machine.gpus))),
        _connections(machine.topology),
        "\n".join(
            fill(
                f"  {finding.code}  {finding.message}",
                WIDTH,
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            for finding in machine.findings
        ),
    ]
    return "\n\n".join(section for section in sections if section)


def to_wire(machine: Machine) -> dict[str, Any]:
    """Return a machine as JSON's types; pairs are "low-high" positions in `gpus`."""
    topology = machine.topology
    wire = topology.to_wire()
    del wire["findings"]
    copies = {f"{low}-{high}": works for (low, high), works in topology.peer_to_peer.items()}
    return {
        "driver_version": machine.driver_version,
        "gpus": [asdict(gpu) for gpu in machine.gpus],
        "topology": {**wire, "peer_to_peer": copies},
        "findings": [asdict(finding) for finding in machine.findings],
    }


def _row(gpu: ProbedGpu) -> tuple[str, ...]:
    """Return a GPU's cells: `?` is what the driver did not say, an empty cell what is not there."""
    links = "?" if gpu.nvlink_links is None else f"{gpu.nvlink_links or ''}"
    pcie = f"{_known(gpu.pcie_generation)} x{_known(gpu.pcie_lanes)}"
    return (
        str(gpu.index),
        gpu.name,
        _memory(gpu.memory_bytes),
        gpu.compute_capability or "?",
        pcie if pcie != "? x?" else "?",
        f"{gpu.nvlink_version} x {links}" if gpu.nvlink_version else links,
        _known(gpu.numa_node),
        " + ".join(_memory(part.memory_bytes) for part in gpu.mig),
    )


def _known(number: int | None) -> str:
    return "?" if number is None else str(number)


def _memory(amount_bytes: int | None) -> str:
    return "?" if amount_bytes is None else format_bytes(amount_bytes)


def _connections(topology: Topology) -> str:
    pairs = topology.num_gpus * (topology.num_gpus - 1) // 2
    bonds = sorted(Counter(topology.nvlink.values()).items(), reverse=True)
    classes = Counter(topology.pcie.values())
    kinds = [(f"NVLink x {links}", number) for links, number in bonds]
    kinds += [(f"PCIe {name}", classes[name]) for name in PCIE_CLASSES if classes[name]]
    kinds += [("unknown", pairs - sum(number for _, number in kinds))]
    shown = "; ".join(f"{kind}: {_pairs(number)}" for kind, number in kinds if number)
    if topology.peer_to_peer:
        working = sum(topology.peer_to_peer.values())
        shown += f"; peer-to-peer copies work in {working} of {_pairs(len(topology.peer_to_peer))}"
    return shown


def _pairs(number: int) -> str:
    return f"{number} pair{'' if number == 1 else 's'}"
