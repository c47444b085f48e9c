"""Pasted tool output -> how the GPUs of one node are connected."""

from planner.topology.graph import PCIE_CLASSES, Finding, Nic, Topology
from planner.topology.matrix import LARGEST_TEXT, parse_topology

__all__ = ["LARGEST_TEXT", "PCIE_CLASSES", "Finding", "Nic", "Topology", "parse_topology"]
