"""What collectives reach of a link, and what is assumed: `data/calibration/interconnect.toml`, typed."""

from collections.abc import Mapping
from functools import cache

from planner.catalog.records import LinkRecord, link, read
from planner.catalog.tables import build
from planner.core.frozen import frozen


@frozen
class OverlapSlowdown:
    """Seconds that compute loses per second of a collective that runs beside it."""

    by_medium: Mapping[str, float]
    source: str


@frozen
class Nvlink:
    """What NVLink is taken to be where neither record nor topology says."""

    default_generation: int
    most_links_per_gpu: int
    largest_domain_gpus: int
    likeliest_gpus: tuple[str, ...]
    """Of the GPUs that are wired as a topology shows, the one to take, the first first."""
    rack_link: str
    """The record of `data/links` of such a domain."""
    baseboard_gpus: int
    """Of one SXM baseboard with a switch."""
    source: str


@frozen
class Fabric:
    """A fabric other than NVLink."""

    achievable_fraction: float
    peers: int
    """GPUs that each GPU has links of its own to."""
    default_link: str
    source: str


@frozen
class Sockets:
    """How a node's GPUs are taken to sit on its CPUs."""

    gpus_on_one: int
    source: str


@frozen
class Power9:
    """The nodes whose CPUs have NVLinks of the GPUs."""

    numa_nodes: tuple[int, ...]
    """As Linux numbers those of the two CPUs."""
    socket_link: str
    source: str


@frozen
class Efa:
    """Which instances reach each other through EFA."""

    cloud: str
    least_bytes_per_second: float
    source: str


@frozen
class Pcie:
    """Rings and copies over PCIe; mappings are by generation, which stands for the host's age."""

    default_generation: int
    default_lanes: int
    default_source: str
    achievable_fraction: float
    achievable_source: str
    gpus_per_host_memory: int
    gpus_per_host_memory_source: str
    p2p_fraction: float
    p2p_source: str
    host_staged_fraction: float
    host_staged_source: str
    host_memory_bytes_per_second: Mapping[int, float]
    host_memory_source: str
    direct_through_cpu_ranks: int
    direct_through_cpu_source: str
    socket_link: Mapping[int, str]
    socket_source: str
    measured: Mapping[str, Mapping[int, str]]
    """Records of `data/links` by GPU and ranks."""

    def known_generation(self, generation: int) -> int:
        """Return the nearest generation that there are records of."""
        return min(max(generation, min(self.socket_link)), max(self.socket_link))

    def x16_link(self, generation: int) -> tuple[LinkRecord, float]:
        """Return the record of a known generation, and what its 16 lanes reach."""
        record = link(f"pcie-{generation}-x16")
        reached = record.achievable_bytes_per_second
        return record, reached or self.achievable_fraction * record.bytes_per_second


@frozen
class Network:
    """Networks between nodes."""

    default: str
    achievable_fraction: float
    latency_seconds: float
    source: str


@frozen
class CollectiveShape:
    """Constants of one operation over one kind of link; see `collectives.within_node`."""

    operation: str = ""
    latency_seconds: float
    latency_seconds_per_rank: float = 0.0
    own_share: float = 0.0
    """Bytes that a rank moves locally, relative to its part of the tensor."""
    efficiency: float = 1.0
    """Share of the link's bandwidth that a large operation reaches."""
    ramp: float = 0.0
    """Latency of one pipeline step, relative to that of the operation."""
    switch_efficiency: float = 0.0
    """Share of the link's bandwidth that a reduction inside the switch reaches; 0: cannot."""


@frozen
class CollectiveFamily:
    """Constants of all operations over the same kinds of link."""

    media: tuple[str, ...]
    all_reduce: CollectiveShape
    all_gather: CollectiveShape
    reduce_scatter: CollectiveShape
    all_to_all: CollectiveShape
    source: str


@frozen
class InSwitch:
    """Reductions inside NVSwitch (NVLS)."""

    first_compute_capability: float
    source: str


@frozen
class NetworkShape:
    """Constants of collectives between nodes; see `collectives`."""

    latency_per_doubling: float
    """Of a tree, per doubling of the nodes, relative to the network's latency."""
    latency_per_hop: float
    """Of a ring, per node beyond two, relative to the network's latency."""
    send_latency: float
    """Of one message, relative to the network's latency."""
    peer_seconds: float
    """Of an all-to-all, per rank of another node."""
    all_to_all_fraction: float
    """Of the bandwidth that a ring reaches, where every rank sends to every other by itself."""
    ramp: float
    contention_per_doubling: float
    """Bandwidth lost per doubling of the nodes beyond two."""
    source: str


@frozen
class Host:
    """Host memory where nobody said how much there is."""

    desktop_bytes: float
    """The most that a node of consumer cards is taken to have."""
    desktop_gpus: int
    """The most cards that a desktop's board seats."""
    source: str
    two_channel_gpus: int
    """The most cards of a board whose memory has two channels."""
    two_channel_bytes_per_second: float
    """That such memory is read and written at."""
    channel_source: str
    server_bytes: float
    """The most that a node of more such cards is taken to have."""
    server_source: str


@frozen
class Interconnect:
    """The record; a section of the file is a field here."""

    latency_seconds: float
    latency_source: str
    overlap_slowdown: OverlapSlowdown
    nvlink: Nvlink
    fabric: Fabric
    sockets: Sockets
    power9: Power9
    efa: Efa
    pcie: Pcie
    network: Network
    collectives: Mapping[str, CollectiveFamily]
    in_switch: InSwitch
    host: Host
    between_nodes: NetworkShape


@cache
def interconnect() -> Interconnect:
    """Return the record."""
    return build(Interconnect, read("calibration", "interconnect"), "calibration/interconnect")
