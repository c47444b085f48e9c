"""Pasted tool output -> how the GPUs of one node are connected."""

from planner.domain.topology import LARGEST_TEXT, PCIE_CLASSES, Nic, Pair, Topology, TopologyFinding
from planner.hardware.topology.draw import draw
from planner.hardware.topology.file import dump
from planner.hardware.topology.paste import parse_topology

__all__ = [
    "LARGEST_TEXT",
    "PCIE_CLASSES",
    "Nic",
    "Pair",
    "Topology",
    "TopologyFinding",
    "draw",
    "dump",
    "parse_topology",
]
