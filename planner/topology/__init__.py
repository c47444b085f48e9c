"""Pasted tool output -> how the GPUs of one node are connected."""

from planner.topology.draw import draw
from planner.topology.file import dump
from planner.topology.findings import FINDINGS
from planner.topology.graph import PCIE_CLASSES, Finding, Nic, Pair, Topology
from planner.topology.paste import LARGEST_TEXT, parse_topology

__all__ = [
    "FINDINGS",
    "LARGEST_TEXT",
    "PCIE_CLASSES",
    "Finding",
    "Nic",
    "Pair",
    "Topology",
    "draw",
    "dump",
    "parse_topology",
]
