"""The connections between the GPUs of one node, however they were found."""

from collections.abc import Mapping
from dataclasses import dataclass, field

PCIE_CLASSES = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""From near to far, as nvidia-smi's legend defines them."""

Pair = tuple[int, int]
"""Two GPU indices, the lower first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the user should know about what was read: hidden, rebuilt or implausible parts."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """A network adapter and its PCIe class to each GPU it was listed with."""

    name: str
    pcie: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Connections between the GPUs of one node.

    A pair that neither `nvlink` nor `pcie` holds was not in what was read.
    """

    num_gpus: int
    nvlink: Mapping[Pair, int]
    """Bonded NVLinks (or XGMI links) of each pair that has any."""
    pcie: Mapping[Pair, str]
    """One of `PCIE_CLASSES` for each pair without NVLink."""
    nics: tuple[Nic, ...] = ()
    numa: Mapping[int, int] = field(default_factory=dict)
    """NUMA node by GPU, where known."""
    peer_to_peer: Mapping[Pair, bool] = field(default_factory=dict)
    """Whether PCIe peer-to-peer copies work, for the pairs where that was read."""
    gpu_names: tuple[str, ...] = ()
    """As the driver reports them, in index order; empty where unknown."""
    findings: tuple[Finding, ...] = ()
