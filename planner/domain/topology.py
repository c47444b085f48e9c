"""The connections between the GPUs of one node, however they were found."""

from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import combinations
from typing import Any, Literal, TypeAlias, get_args

from planner.core.frozen import frozen

PcieClass: TypeAlias = Literal["PIX", "PXB", "PHB", "NODE", "SYS"]
PCIE_CLASSES: tuple[str, ...] = get_args(PcieClass)
"""From near to far, as nvidia-smi's legend defines them."""

MOST_GPUS = 72
"""Of one node; the largest NVLink domain that is sold."""

NO_FABRIC_CLUSTER = "none"
"""What `Topology.fabric_cluster` holds where the driver says that NVLink ends at the node."""

MOST_LINKS = 36
"""NVLinks between two GPUs."""

LARGEST_TEXT = 64 * 1024
"""Characters of a text that one is read from; a real paste has at most a few thousand."""

Pair = tuple[int, int]
"""Two GPU indices, the lower first."""


@frozen
class TopologyFinding:
    """What the user should know about what was read: hidden, rebuilt or implausible parts."""

    code: str
    message: str


@frozen
class Nic:
    """A network adapter and its PCIe class to each GPU it was listed with."""

    name: str
    pcie: Mapping[int, str]


@frozen
class Topology:
    """Connections between the GPUs of one node.

    A pair that neither `nvlink` nor `pcie` holds was not in what was read.
    """

    num_gpus: int
    nvlink: Mapping[Pair, int]
    """Bonded NVLinks of each pair that has any; XGMI counts as one, as its tool prints no number."""
    pcie: Mapping[Pair, str]
    """One of `PCIE_CLASSES` for each pair without NVLink."""
    nics: tuple[Nic, ...] = ()
    numa: Mapping[int, int] = field(default_factory=dict)
    """NUMA node by GPU, where known; the first where the driver names several."""
    peer_to_peer: Mapping[Pair, bool] = field(default_factory=dict)
    """Whether PCIe peer-to-peer copies work, for the pairs where that was read."""
    gpu_names: tuple[str, ...] = ()
    """As the driver reports them, in index order; empty where unknown."""
    active_nvlinks: Mapping[int, int] = field(default_factory=dict)
    """NVLinks that are up, by GPU, where `nvidia-smi nvlink -s` was read."""
    nvlink_bytes_per_second: Mapping[int, float] = field(default_factory=dict)
    """One link of each such GPU, per direction; the slowest where they differ."""
    memory_bytes: Mapping[int, int] = field(default_factory=dict)
    """By GPU, where a GPU table was read."""
    pcie_generation: Mapping[int, int] = field(default_factory=dict)
    """The highest that slot and GPU reach together; an idle link reports less."""
    pcie_lanes: Mapping[int, int] = field(default_factory=dict)
    mig_instances: Mapping[int, int] = field(default_factory=dict)
    """Parts that MIG splits a GPU into, of those in MIG mode; 0 where that was not said."""
    fabric_cluster: str = ""
    """The NVLink cluster that the GPUs belong to, beyond the node, as NVML names it; "" unknown."""
    findings: tuple[TopologyFinding, ...] = ()

    @property
    def pairs(self) -> Iterator[Pair]:
        """Return every pair of GPUs, the nearest indices first."""
        return combinations(range(self.num_gpus), 2)

    @property
    def missing_pairs(self) -> tuple[Pair, ...]:
        """Return the pairs whose connection was not in what was read."""
        return tuple(p for p in self.pairs if p not in self.nvlink and p not in self.pcie)

    @property
    def islands(self) -> tuple[tuple[int, ...], ...]:
        """Return the GPUs partitioned into groups in which NVLink joins every pair.

        The largest group is taken out first (then the one with most links, then the lowest
        indices), so the two halves of a hybrid cube mesh are its islands. A GPU that is left
        alone is an island of its own.

        Leaves out: groups are grown greedily from each GPU, so in irregular meshes a larger one
        may exist.
        """
        neighbours = _neighbours(self.num_gpus, self.nvlink)
        rest = set(range(self.num_gpus))
        found: list[tuple[int, ...]] = []
        while rest:
            best = self._largest_clique(neighbours, rest)
            found.append(best)
            rest -= set(best)
        return tuple(sorted(found))

    @property
    def numa_nodes(self) -> Mapping[int, tuple[int, ...]]:
        """Return the GPUs of each NUMA node that is known."""
        return {
            node: tuple(gpu for gpu in sorted(self.numa) if self.numa[gpu] == node)
            for node in sorted(set(self.numa.values()))
        }

    def nics_near(self, gpu: int) -> tuple[Nic, ...]:
        """Return the network adapters at the nearest PCIe class that this GPU has any at."""
        classes = [nic.pcie[gpu] for nic in self.nics if gpu in nic.pcie]
        nearest = min(classes, key=PCIE_CLASSES.index, default=None)
        return tuple(nic for nic in self.nics if nearest and nic.pcie.get(gpu) == nearest)

    def to_wire(self) -> dict[str, Any]:
        """Return the object that every door answers with, ready for JSON."""
        return {
            "gpus": self.num_gpus,
            "nics": [nic.name for nic in self.nics],
            "nvlink": {f"{a}-{b}": links for (a, b), links in sorted(self.nvlink.items())},
            "pcie": {f"{a}-{b}": name for (a, b), name in sorted(self.pcie.items())},
            "islands": [list(island) for island in self.islands],
            "numa": {str(gpu): node for gpu, node in sorted(self.numa.items())},
            "findings": [{"code": f.code, "message": f.message} for f in self.findings],
        }

    def _largest_clique(self, neighbours: list[set[int]], within: set[int]) -> tuple[int, ...]:
        best: tuple[int, ...] = ()
        for seed in sorted(within):
            clique = _clique(seed, neighbours, within)
            if (len(clique), self._links_among(clique)) > (len(best), self._links_among(best)):
                best = clique
            if len(best) == len(within):
                break
        return best

    def _links_among(self, gpus: tuple[int, ...]) -> int:
        return sum(self.nvlink[pair] for pair in combinations(gpus, 2))


def _neighbours(num_gpus: int, nvlink: Mapping[Pair, int]) -> list[set[int]]:
    neighbours: list[set[int]] = [set() for _ in range(num_gpus)]
    for low, high in nvlink:
        neighbours[low].add(high)
        neighbours[high].add(low)
    return neighbours


def _clique(seed: int, neighbours: list[set[int]], within: set[int]) -> tuple[int, ...]:
    clique = [seed]
    choice = neighbours[seed] & within
    while choice:
        new = max(sorted(choice), key=lambda gpu: len(neighbours[gpu] & choice))
        clique.append(new)
        choice = choice & neighbours[new]
    return tuple(sorted(clique))
