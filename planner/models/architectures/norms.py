"""What normalises hidden states: its parameters, and what it keeps for backward."""

from enum import StrEnum

from planner.domain.kept import Kept
from planner.domain.model import Attention
from planner.models.architectures import kept, work


class Norm(StrEnum):
    """A norm as its modelling code computes it."""

    RMS = "rms"
    """Keeps an fp32 copy, and the normalised input in the compute dtype."""
    RMS_FP32 = "rms-fp32"
    """Keeps both in fp32: the weight multiplies before the cast back."""
    LAYER = "layer"
    """torch's layer norm with weight and bias."""
    LAYER_NO_BIAS = "layer-no-bias"
    LAYER_BARE = "layer-bare"
    """No parameters, computed in fp32."""
    LAYER_SPELLED_OUT = "layer-spelled-out"
    """Cohere's: weight alone, every step of it an operation in fp32."""

    @property
    def parameters_per_channel(self) -> int:
        """Return the parameters of the norm for each channel."""
        return {Norm.LAYER: 2, Norm.LAYER_BARE: 0}.get(self, 1)

    def kept(self, name: str, size: int) -> Kept:
        """Return what the norm keeps for a hidden state of that size."""
        if self is Norm.RMS:
            return kept.rms_norm(name, size)
        fp32 = {
            Norm.RMS_FP32: 8 * size + 4,
            Norm.LAYER_BARE: 4 * size + kept.STATISTICS,
            Norm.LAYER_SPELLED_OUT: 12 * size + kept.STATISTICS,
        }.get(self)
        if fp32 is None:
            return kept.layer_norm(name, size)
        fused = 2 * size + kept.STATISTICS
        # The normalised input serves the norm's own weight.
        frozen = fp32 - (4 * size if self.parameters_per_channel else 0)
        return Kept(
            name=name,
            bytes_per_token=(fp32, fp32, fp32, fused),
            frozen_bytes_per_token=(frozen, frozen, frozen, fused),
            work=work.norm(size) if self is Norm.LAYER_BARE else work.rms_norm(size),
            compiled_bytes_per_token=(4 * size + 4, 4 * size + 4, 2 * size + 4),
        )


def query_key_norms(scope: str, attention: Attention) -> list[tuple[str, int, int]]:
    """Return name, channels and normalised width of the norms on queries and keys.

    Args:
        scope: "head" for one norm per head, "all" for one over all of them, "" for none.
        attention: the heads.
    """
    if not scope:
        return []
    widths = {"query": attention.query_size, "key": attention.key_value_size}
    return [
        (name, attention.head_dim if scope == "head" else width, width)
        for name, width in widths.items()
    ]
