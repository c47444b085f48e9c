"""What an operation of a model keeps for backward: in which numbers, and how tensor parallelism divides it."""

from enum import IntEnum, StrEnum

from planner.core.frozen import frozen
from planner.domain.work import Work


class Numerics(IntEnum):
    """Which dtypes the forward pass really runs in; indexes the per-numerics byte counts."""

    FP32 = 0
    """Parameters and activations in fp32 (or tf32)."""
    AUTOCAST = 1
    """fp32 parameters under `torch.autocast`: matmuls in 16 bit, norms and softmax in fp32."""
    HALF = 2
    """16-bit parameters and activations: pure bf16, or FSDP2's mixed-precision policy."""
    FUSED = 3
    """16 bit with fused norms, gates and softmax, as Megatron and its relatives run."""


class Share(StrEnum):
    """How tensor parallelism divides what a layer keeps."""

    SEQUENCE = "sequence"
    """Between the parallel regions: whole on every rank, unless sequence parallelism divides it."""
    INPUT = "input"
    """Input of column-parallel matmuls: as SEQUENCE, or kept as gathered, as the framework does."""
    SPLIT = "split"
    """Inside a parallel region: each rank has its heads or channels."""


GATED = "up"
"""What a gated product keeps besides its activated half."""


@frozen
class Kept:
    """A tensor that autograd keeps for backward: bytes per token in each `Numerics`."""

    name: str
    bytes_per_token: tuple[float, ...]
    """By `Numerics`; the last entry serves those beyond it."""
    share: Share = Share.SEQUENCE
    operand_of: tuple[str, ...] = ()
    """The linears whose weight gradient is all that needs it; frozen ones let it go."""
    frozen_bytes_per_token: tuple[float, ...] = ()
    """What stays of it beside frozen weights, by `Numerics`; empty for all of it."""
    reads_source: bool = False
    """Of an encoder's tokens, in a part that sees those of the target."""
    is_activation_input: bool = False
    """A gated activation reads it, which can keep it for backward in fp8."""
    is_normalised_in_fp32: bool = False
    """Of a norm that autocast runs in fp32, and whose output is fp32 whatever came in."""
    work: Work | None = None
    """Of the operation that keeps it, where that was counted."""
    compiled_bytes_per_token: tuple[float, ...] = ()
    """What torch.compile leaves of it, by `Numerics`; empty for all of it."""

    def bytes_in(self, numerics: Numerics) -> float:
        """Return the bytes per token under those numerics."""
        return self.bytes_per_token[min(numerics, len(self.bytes_per_token) - 1)]

    def compiled_bytes_in(self, numerics: Numerics) -> float:
        """Return the bytes per token under those numerics where the part is compiled."""
        sizes = self.compiled_bytes_per_token or self.bytes_per_token
        return sizes[min(numerics, len(sizes) - 1)]

    def frozen_bytes_in(self, numerics: Numerics) -> float:
        """Return the bytes per token beside frozen weights, were no linear's input needed."""
        sizes = self.frozen_bytes_per_token or self.bytes_per_token
        return 0 if self.operand_of else sizes[min(numerics, len(sizes) - 1)]
