"""What a precision mode costs per parameter."""

from dataclasses import replace

from planner.core.frozen import frozen
from planner.domain.kept import Numerics

MATMUL_BYTES = {"fp32": 4, "tf32": 4, "fp8": 1}
"""Of an element of a matmul's operands, where not 2."""


@frozen
class Precision:
    """How a precision mode stores a parameter and its companions; bytes per parameter."""

    parameter_bytes: float
    """As forward and backward read it, for as long as the step lasts."""
    gradient_bytes: float
    master_bytes: float = 0
    """Of the fp32 copy that the optimizer steps; 0 where it steps the parameters themselves."""
    master_gradient_bytes: float = 0
    """Of the gradient that goes with that copy; 0 where the optimizer reads the other one."""
    passing_gradient_bytes: float = 0
    """Of the gradient that backward writes before it is added to an accumulator of its own."""
    frozen_bytes: float = 0
    """Of a weight of the trunk that is not trained; 0 where it is as others are."""
    operand_fraction: float = 1
    """Of what 16 bit would keep of a matmul's operand: a half in fp8."""
    gather_bytes: float
    """Of a gathered parameter under ZeRO-3: the compute dtype."""
    reduce_bytes: float
    """Of a gradient on the wire."""
    replicated_numerics: Numerics
    sharded_numerics: Numerics
    """ZeRO-2 and 3 compute in the gathered dtype, where DDP and ZeRO-1 use autocast."""
    matmul_dtype: str
    follows_config: bool = False
    """Parameters may be in the dtype that config.json names, as transformers loads them."""
    overlaps_tensor: bool = False
    """Recipes of this precision have exchanges of tensor parallelism travel in pieces behind matmuls, beside
    sequence parallelism."""
    copy_bytes: float = 2
    """Of the copy that autocast makes of a matmul weight."""

    @property
    def wide_matmul_dtype(self) -> str:
        """Return the dtype of what fp8 is too narrow for: attention, and the head."""
        return "bf16" if self.matmul_dtype == "fp8" else self.matmul_dtype

    @property
    def stepped_bytes(self) -> float:
        """Return the bytes of the parameter that the optimizer steps."""
        return self.master_bytes or self.parameter_bytes

    def with_16_bit_weights(
        self, *, is_matmul_dtype: bool, normalises_in_fp32: bool
    ) -> "Precision":
        """Return the mode as it runs on parameters loaded in 16 bit.

        Autocast has nothing to cast where that is its own dtype, so the hidden states are in 16 bit
        too; torch's layer norms still run in fp32 and hand fp32 on. Where it is the other 16-bit
        dtype every matmul casts, and the sums of both are fp32.

        Args:
            is_matmul_dtype: the weights are in the dtype that autocast computes in.
            normalises_in_fp32: the model has layer norms that autocast runs in fp32.
        """
        loaded = replace(self, parameter_bytes=2, gradient_bytes=2)
        if not is_matmul_dtype or self.replicated_numerics != Numerics.AUTOCAST:
            return loaded
        numerics = Numerics.AUTOCAST if normalises_in_fp32 else Numerics.HALF
        return replace(loaded, copy_bytes=0, replicated_numerics=numerics)
