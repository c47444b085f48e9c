"""What a training framework spends per parameter, buffer and operation: data, not branches."""

from collections.abc import Mapping
from dataclasses import dataclass

from planner.model import Numerics


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How a precision mode stores a parameter and its companions; bytes per parameter."""

    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    gather_bytes: int
    """Of a gathered parameter under ZeRO-3: the compute dtype."""
    reduce_bytes: int
    """Of a gradient on the wire."""
    replicated_numerics: Numerics
    sharded_numerics: Numerics
    """ZeRO-2 and 3 compute in the gathered dtype, where DDP and ZeRO-1 use autocast."""
    matmul_dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """What an optimizer step needs beyond its states."""

    temporary_fraction: float
    """Temporaries, as a fraction of the parameters it steps."""
    passes: float
    """Tensors the size of the parameters that it reads and writes."""
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """One record of `data/frameworks`, in base units."""

    name: str
    zero_stages: tuple[int, ...]
    precisions: Mapping[str, Precision]
    optimizers: Mapping[str, Optimizer]
    context_bytes: float
    nccl_bytes: float
    allocator_fraction: float
    """What the caching allocator reserves above the allocated peak."""
    usable_fraction: float
    """Share of a card's nominal memory that processes can take."""
    bucket_bytes: float
    backward_overlap_fraction: float
    host_seconds_per_operation: float
    sustained_fraction: float
    """Share of a matmul kernel's isolated speed that training keeps."""
    elementwise_hbm_fraction: float
    forward_passes: float
    backward_passes: float
    flash_fraction: float
    spreads: Mapping[str, float]
    """Half-widths of the low-high ranges, by kind."""
    sources: Mapping[str, str]
    """Where each section of the record comes from."""
