"""LFM2's short convolution: two gates around a depthwise convolution over a few tokens."""

from planner.domain.model import Linear
from planner.models.architectures import kept
from planner.models.architectures.config import Config
from planner.models.architectures.decoder_family import DecoderFamily
from planner.models.architectures.pieces import Piece


def short_convolution(_family: DecoderFamily, config: Config, hidden: int) -> tuple[None, Piece]:
    """Return the mixer of LFM2: a projection to two gates and a value, the convolution, a projection.

    Kept: the projection, the gated value that the convolution reads, what it puts out, and the gated output.
    Source: transformers 5.23, Lfm2ShortConv.
    Leaves out: the FLOPs of the convolution, a few for each channel.
    """
    has_bias = config.flag("conv_bias", default=False)
    shapes = (("in_proj", 3 * hidden), ("out_proj", hidden))
    return None, Piece(
        linears=tuple(
            Linear(name=name, in_features=hidden, out_features=columns, has_bias=has_bias)
            for name, columns in shapes
        ),
        vectors={"conv": hidden * (config.size("conv_L_cache", 3) + has_bias)},
        kept=(
            kept.operand("in_proj_input", hidden, of=("in_proj",)),
            kept.operand("gates_and_value", 3 * hidden),
            kept.operand("convolution", 2 * hidden),
            kept.operand("out_proj_input", hidden, of=("out_proj",)),
        ),
    )
