"""GPUs and the links between them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Provenance(StrEnum):
    """Where a figure comes from; the less is known, the wider the range."""

    MEASURED = "measured"
    """A benchmark of this very hardware."""
    DERIVED = "derived"
    """Arithmetic from the link's data sheet or from a relative's measurement."""
    ASSUMED = "assumed"
    """Nothing was said and nothing was found: a stated default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmCurve:
    """Time of one GEMM over its size; see `data/calibration/gemm.toml` for the formula."""

    overhead_seconds: float
    peak_fraction: float
    hbm_fraction: float
    sharpness: float
    spread: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One record of `data/gpus`, in base units."""

    name: str
    vendor: str
    nvml_names: tuple[str, ...]
    aliases: tuple[str, ...]
    memory_bytes: int
    peak_flops: Mapping[str, float]
    """Dense FLOPs per second by dtype, fp32 accumulation."""
    hbm_bytes_per_second: float
    compute_capability: str
    pcie_generation: int
    pcie_lanes: int
    nvlink_generation: int
    """0 without NVLink."""
    nvlink_links: int
    nvlink_bytes_per_second_per_link: float
    nvlink_fabric: str
    """"nvswitch", "bridge", "mesh", or "" without a fabric."""
    fabric_bytes_per_second: float
    """Per direction, of a fabric other than NVLink (XGMI, RoCE); 0 without one."""
    has_p2p: bool
    """PCIe peer-to-peer between cards."""
    source: str
    gemm: GemmCurve


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Identical nodes of identical GPUs."""

    gpu: Gpu
    gpus_per_node: int
    nodes: int
    intra_node: Link
    inter_node: Link | None
    """None on a single node."""

    @property
    def world_size(self) -> int:
        """Return the number of GPUs."""
        return self.gpus_per_node * self.nodes

    @property
    def slowest_link(self) -> Link:
        """Return the link that bounds a ring through all GPUs."""
        links = [link for link in (self.intra_node, self.inter_node) if link]
        return min(links, key=lambda link: link.bytes_per_second)
