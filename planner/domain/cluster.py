"""GPUs and the links between them."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from planner.core.frozen import frozen
from planner.core.term import Amount
from planner.domain.timed import TimedAttention, TimedCollective
from planner.domain.topology import Topology


class Provenance(StrEnum):
    """Where a figure comes from; the less is known, the wider the range."""

    OWN = "measured here"
    """A measurement of the user's own machine."""
    MEASURED = "measured"
    """A benchmark of this very hardware."""
    DERIVED = "derived"
    """Arithmetic from the link's data sheet or from a relative's measurement."""
    ASSUMED = "assumed"
    """Nothing was said and nothing was found: a stated default."""


@frozen
class GemmCurve:
    """Time of one GEMM over its size; see `data/calibration/gemm.toml` for the formula."""

    overhead_seconds: float
    peak_fraction: float
    hbm_fraction: float
    sharpness: float
    spread: float
    source: str
    fractions: Mapping[str, float] = field(default_factory=dict)
    """The share of the peak by dtype, where that of several was timed."""

    def of_peak(self, dtype: str) -> float:
        """Return the share of the dtype's peak that large products reach."""
        return self.fractions.get(dtype, self.peak_fraction)


@frozen
class Gpu:
    """One record of `data/gpus`, in base units."""

    name: str
    vendor: str
    nvml_names: tuple[str, ...]
    aliases: tuple[str, ...]
    memory_bytes: int
    usable_bytes: float = 0
    """What a process was seen to have of it; 0 where nobody said."""
    peak_flops: Mapping[str, float]
    """Dense FLOPs per second by dtype, fp32 accumulation."""
    hbm_bytes_per_second: float
    compute_capability: str = ""
    """"" of cards of other makers than NVIDIA."""
    pcie_generation: int = 0
    pcie_lanes: int = 0
    nvlink_generation: int = 0
    """0 without NVLink."""
    nvlink_links: int = 0
    nvlink_bytes_per_second_per_link: float = 0
    nvswitch_node_gpus: int = 0
    """Up to so many GPUs of a node too large for a mesh have a switch in its place; 0: none has."""
    nvlink_domain_gpus: int = 0
    """GPUs that NVLink joins across nodes, in racks sold whole; 0: those of a node."""
    nvlink_fabric: str = ""
    """"nvswitch", "bridge", "mesh", or "" without a fabric."""
    fabric_bytes_per_second: float = 0
    """Per direction, of a fabric other than NVLink (XGMI, RoCE), past the package; 0 without one."""
    twin_bytes_per_second: float = 0
    """Per direction, to the other die of a package that is two GPUs to PyTorch."""
    fabric_link: str = ""
    """The record of `data/links` that one NVLink or XGMI link of it is; "" where it has none."""
    tdp_watts: float = 0
    """The limit that the card runs at; 0 where nobody said."""
    limit_watts: float = 0
    """A limit that a request sets; 0: the card's own."""
    full_watts: float = 0
    """What its silicon draws where the rates of its curves were measured; 0: as much as this card may."""
    has_p2p: bool
    """PCIe peer-to-peer between cards."""
    is_consumer: bool = False
    """Sold for desktops."""
    source: str
    gemm: GemmCurve
    kernel_factor: float = 1.0
    """How much longer the kernels of the user's own cards take than the curves say, by timed runs."""
    adapters_factor: float = 1.0
    """And those of trainings with adapters, beside that."""
    timed_attention: tuple[TimedAttention, ...] = ()
    host_link_bytes_per_second: float = 0.0
    """Of copies from and to the host, as timed, or over NVLink; 0: by the slot."""
    optimizer_bytes_per_second: float = 0.0
    """That an optimizer's update moves, as timed; 0: as elementwise kernels do."""


@frozen
class Link:
    """What a group of GPUs sees of its wiring: one bus bandwidth and one latency."""

    name: str
    bytes_per_second: float
    """Bus bandwidth of a large ring all-reduce: what each GPU sends and receives at once."""
    latency_seconds: float
    provenance: Provenance
    source: str
    is_fast: bool = False
    """NVLink or NVSwitch, in the sense of the HF guide's decision tree."""
    medium: str = "given"
    """What carries it: nvswitch, nvlink, pcie, host (PCIe staged through host memory), xgmi,
    fabric, network, or given by the user."""
    staged_because: str = ""
    """Why it goes through host memory, where it does."""
    transport: str = ""
    """What NCCL talks over a network: infiniband (RoCE too), efa, ethernet, or "" where unknown."""
    system: str = ""
    """The measured system of `data/calibration/collectives` that this link belongs to, if any."""


@frozen
class Instance:
    """One record of `data/instances`: a cloud machine by name."""

    name: str
    cloud: str
    gpu: str
    gpus_per_node: int
    intra_node: str = ""
    """A link name, or "" for what the GPU's record says."""
    topology: str = ""
    """Text of `nvidia-smi topo -m`, or ""."""
    nvlink_domain_gpus: int = 0
    """GPUs that NVLink joins across machines; 0: those of one."""
    network_bytes_per_second: float = 0.0
    """Of one node, per direction; 0 where unknown."""
    efa_interfaces: int = 0
    """Of AWS's adapters for NCCL, in one node; 0 without or unknown."""
    host_memory_bytes: float = 0
    """0 where unknown."""
    usd_per_hour: float = 0.0
    """On demand, one instance; 0 where unknown."""
    price_source: str = ""
    """With its date."""
    source: str
    wiring: str = ""
    """In a word, for people: NVSwitch, NVLink mesh, PCIe ...; "" for a single GPU."""
    vcpus: int = 0
    """0 where unknown."""
    price_date: str = ""
    notes: str = ""
    alias: str = ""
    """A part of its name that people mean it by, although other sizes begin so; "" where none is."""
    sagemaker_type: str = ""
    """What a SageMaker training job calls it; "" where it has none."""


@frozen
class Group:
    """Ranks that communicate: `ranks` of them, `stride` global ranks apart; may be columns.

    Local ranks run first within a node, and nodes of an NVLink domain follow each other, so a group
    keeps inside its node while `ranks * stride <= gpus_per_node`, inside NVLink while `<= joined_gpus`.
    """

    ranks: Amount
    stride: Amount = 1


@frozen
class Cluster:
    """Identical nodes of identical GPUs."""

    gpu: Gpu
    gpus_per_node: int
    nodes: int
    intra_node: Link
    inter_node: Link | None
    """Of one node, to other nodes, or beyond the NVLink domain; None on a single node."""
    nvlink_domain_gpus: int = 0
    """GPUs that NVLink joins across nodes (a rack); 0: those of a node."""
    domain_link: Link | None = None
    """What a group sees that leaves its node but not the NVLink domain."""
    group_links: Mapping[tuple[int, int], Link] = field(default_factory=dict)
    """By (ranks in a node, stride): what a group of local ranks 0, stride, 2 stride ... gets, the
    slowest such group of the node."""
    gpu_order: tuple[int, ...] = ()
    """Physical GPU index of each local rank; empty: in index order."""
    topology: Topology | None = None
    instance: Instance | None = None
    host_memory_bytes: float = 0.0
    """Of one node; 0 where unknown."""
    timed_collectives: tuple[TimedCollective, ...] = ()
    exchange_factor: float = 1.0
    """How much longer exchanges take on the user's own machine than the links say, by timed runs."""
    larger_gpus: "Cluster | None" = None
    """Without the smallest and slowest model of a mixed node's GPUs."""

    def link(self, ranks: int, stride: int = 1) -> Link:
        """Return the link among `ranks` GPUs of a node or an NVLink domain, `stride` ranks apart."""
        if self.domain_link and (ranks - 1) * stride >= self.gpus_per_node:
            return self.domain_link
        return self.group_links.get((ranks, stride), self.intra_node)

    @property
    def world_size(self) -> int:
        """Return the number of GPUs."""
        return self.gpus_per_node * self.nodes

    @property
    def joined_gpus(self) -> int:
        """Return the GPUs that no network parts: of a node, or of the nodes of a rack joined by NVLink.

        Of a rack as many nodes are used as divide all nodes evenly: 64 GPUs of 72 for jobs of 128.
        """
        most = min(self.nvlink_domain_gpus // self.gpus_per_node, self.nodes)
        nodes = next((count for count in range(most, 1, -1) if self.nodes % count == 0), 1)
        return nodes * self.gpus_per_node

    @property
    def needs_network(self) -> bool:
        """Return whether the GPUs are more than NVLink or a node joins."""
        return self.world_size > self.joined_gpus

    @property
    def slowest_link(self) -> Link:
        """Return the link that bounds a ring through all GPUs."""
        network = self.inter_node if self.needs_network else None
        rack = self.domain_link if self.joined_gpus > self.gpus_per_node else None
        links = [link for link in (self.intra_node, rack, network) if link]
        return min(links, key=lambda link: link.bytes_per_second)
