"""What joins each pair of a node's GPUs: read from its topology, else from the GPU's record."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import combinations

from planner.catalog import records
from planner.catalog.interconnect import interconnect
from planner.core.frozen import frozen
from planner.domain.cluster import Gpu
from planner.domain.topology import Topology

Pair = tuple[int, int]


@frozen
class NodeLinks:
    """The pairs of a node's GPUs. A pair that nothing is known of is joined by its CPU (PHB)."""

    gpu: Gpu
    num_gpus: int
    nvlink: Mapping[Pair, int] = field(default_factory=dict)
    """Links of each pair that has any; none where peer-to-peer copies are switched off."""
    is_switched: bool = False
    """Each pair's links are all that a GPU has: they do not add up."""
    is_fabric: bool = False
    """Another fabric than NVLink joins all of them, as the GPU's record says."""
    pcie: Mapping[Pair, str] = field(default_factory=dict)
    second_socket: int = 0
    """The first GPU that is taken to sit on another CPU, where no class was read; 0: none."""
    numa: Mapping[int, int] = field(default_factory=dict)
    peer_to_peer: bool | None = None
    """Switched off or forced by the user."""
    reads_peers: Mapping[Pair, bool] = field(default_factory=dict)
    """Whether copies over PCIe work, for the pairs where that was read."""
    pcie_generation: int
    pcie_lanes: int

    def nvlinks(self, low: int, high: int) -> int:
        """Return the NVLinks of a pair."""
        return self.nvlink.get(_pair(low, high), 0)

    def pcie_class(self, low: int, high: int) -> str:
        """Return one of `PCIE_CLASSES`, whatever else joins the pair."""
        low, high = _pair(low, high)
        return self.pcie.get((low, high)) or ("SYS" if low < self.second_socket <= high else "PHB")

    def is_across_sockets(self, low: int, high: int) -> bool:
        """Return whether PCIe crosses the link between two CPUs; NUMA nodes outvote the class."""
        nodes = (self.numa.get(low), self.numa.get(high))
        if None not in nodes and nodes[0] == nodes[1]:
            return False
        return self.pcie_class(low, high) == "SYS"

    def can_copy(self, gpus: Iterable[int]) -> bool:
        """Return whether every pair can copy from card to card over PCIe."""
        if self.peer_to_peer is not None:
            return self.peer_to_peer
        pairs = combinations(sorted(gpus), 2)
        return all(self.reads_peers.get(pair, self.gpu.has_p2p) for pair in pairs)

    @property
    def is_power9(self) -> bool:
        """Return whether the CPUs are POWER9, to which half of the GPUs' NVLinks go."""
        half = self.gpu.nvlink_links // 2
        return (
            set(self.numa.values()) == set(interconnect().power9.numa_nodes)
            and half in self.nvlink.values()
        )


def _pair(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)


def links_of_topology(gpu: Gpu, topology: Topology, *, peer_to_peer: bool | None) -> NodeLinks:
    """Return what the topology shows."""
    nvlink = {} if peer_to_peer is False else topology.nvlink
    slot = interconnect().pcie
    return NodeLinks(
        gpu=gpu,
        num_gpus=topology.num_gpus,
        nvlink=nvlink,
        is_switched=_is_switched(gpu, topology.num_gpus, nvlink),
        pcie=topology.pcie,
        numa=topology.numa,
        peer_to_peer=peer_to_peer,
        reads_peers=topology.peer_to_peer,
        pcie_generation=min(topology.pcie_generation.values(), default=gpu.pcie_generation)
        or slot.default_generation,
        pcie_lanes=min(topology.pcie_lanes.values(), default=gpu.pcie_lanes) or slot.default_lanes,
    )


def _is_switched(gpu: Gpu, num_gpus: int, nvlink: Mapping[Pair, int]) -> bool:
    has = max(gpu.nvlink_links or interconnect().nvlink.most_links_per_gpu, *nvlink.values(), 0)
    if gpu.nvlink_fabric == "nvswitch" and gpu.nvlink_links in nvlink.values():
        return True
    shows = [sum(n for pair, n in nvlink.items() if i in pair) for i in range(num_gpus)]
    return max(shows, default=0) > has


def links_of_record(gpu: Gpu, num_gpus: int, *, peer_to_peer: bool | None) -> NodeLinks:
    """Return what such a node has as a rule; bridges are optional, so they do not count."""
    nvlink = {} if peer_to_peer is False else _nvlink_of_record(gpu, num_gpus)
    slot, on_one = interconnect().pcie, interconnect().sockets.gpus_on_one
    return NodeLinks(
        gpu=gpu,
        num_gpus=num_gpus,
        nvlink=nvlink,
        is_switched=bool(nvlink) and _has_switch(gpu, num_gpus),
        is_fabric=gpu.fabric_bytes_per_second > 0 and peer_to_peer is not False,
        second_socket=(num_gpus + 1) // 2 if num_gpus > on_one else 0,
        peer_to_peer=peer_to_peer,
        pcie_generation=gpu.pcie_generation or slot.default_generation,
        pcie_lanes=gpu.pcie_lanes or slot.default_lanes,
    )


def _has_switch(gpu: Gpu, num_gpus: int) -> bool:
    """Return whether a switch joins the GPUs of such a node: 16 V100 are a DGX-2, 8 a DGX-1."""
    if gpu.nvlink_fabric == "nvswitch":
        return num_gpus <= interconnect().nvlink.largest_domain_gpus
    return _gpus_of_a_mesh() < num_gpus <= gpu.nvswitch_node_gpus


def _gpus_of_a_mesh() -> int:
    return 1 + max(high for _, high in records.cube_mesh())


def _nvlink_of_record(gpu: Gpu, num_gpus: int) -> Mapping[Pair, int]:
    """Return a switch's, or a mesh's: a clique on one socket, else a hybrid cube mesh."""
    if _has_switch(gpu, num_gpus):
        return dict.fromkeys(combinations(range(num_gpus), 2), gpu.nvlink_links)
    if gpu.nvlink_fabric != "mesh" or num_gpus > _gpus_of_a_mesh():
        return {}
    if num_gpus <= interconnect().sockets.gpus_on_one:
        return dict.fromkeys(combinations(range(num_gpus), 2), gpu.nvlink_links // 3)
    return cube_links(gpu, num_gpus)


def cube_links(gpu: Gpu, num_gpus: int) -> Mapping[Pair, int]:
    """Return the links of the first GPUs of a hybrid cube mesh; a GPU of few links has single ones."""
    cube = records.cube_mesh()
    links_of_corner = sum(n for pair, n in cube.items() if 0 in pair)
    most = 1 if gpu.nvlink_links < links_of_corner else 2
    return {pair: min(n, most) for pair, n in cube.items() if pair[1] < num_gpus}


def islands(
    gpus: Sequence[int], are_joined: Callable[[int, int], object]
) -> tuple[tuple[int, ...], ...]:
    """Return the GPUs in groups such that no two groups are joined by any pair."""
    joined: list[tuple[int, ...]] = []
    for gpu in gpus:
        near = [island for island in joined if any(are_joined(gpu, peer) for peer in island)]
        merged = (*(peer for island in near for peer in island), gpu)
        joined = [island for island in joined if island not in near] + [merged]
    return tuple(joined)
