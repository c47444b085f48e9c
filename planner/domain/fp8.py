"""How the operands of 8-bit matmuls are scaled, and what that costs beside the matmuls."""

from planner.core.frozen import frozen


@frozen
class Fp8Recipe:
    """One way to scale what is rounded to 8 bit, as a framework's library does it; bytes are read and written."""

    operand_bytes: float
    """Per element of an input, and of an output's gradient, in forward and backward together."""
    rescaled_bytes: float = 0
    """Per element of an input's gradient whose scales are multiplied in after the matmul, by a kernel of its own."""
    weight_bytes: float = 0
    """Per weight and micro-batch; 0 where the rounded weights last for the step."""
    matmul_fraction: float = 1
    """Of the rate of matmuls with one scale per tensor, what its kernels reach."""
    gathers_rounded: bool
    """Tensor parallelism gathers what was rounded, in one byte per element."""
    least_capability: str
    """Of NVIDIA's cards: the first that has it."""
    nvidia_alone: bool = False
    """Other makers' cards do not have it."""
    source: str
