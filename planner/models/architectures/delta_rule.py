"""Linear attention by the gated delta rule: a state per head that each token decays and corrects."""

from planner.domain.kept import Kept
from planner.domain.model import Linear
from planner.models.architectures import kept
from planner.models.architectures.config import Config
from planner.models.architectures.decoder_family import DecoderFamily
from planner.models.architectures.pieces import Piece

CHUNK = 64
"""Tokens whose mutual effects are computed at once; transformers takes no other."""


def delta_rule(
    _family: DecoderFamily, config: Config, hidden: int, *, is_joint: bool = False
) -> tuple[None, Piece]:
    """Return the linear attention of a gated delta net.

        flops per token = heads * (6 k v + C (5 k + 3 v))

    Notation: k and v channels of a key and a value head, C tokens of a chunk. k v: the state is read
    for the values and the queries, and written; C: scores of keys and of queries (2 k each), two
    triangular solves (k + v), the scores times the values (2 v).

    Args:
        config: the model's.
        hidden: its hidden size.
        is_joint: queries, keys, values and gate grow out of one matrix, both scales out of another.
    Source: Yang et al., Gated Delta Networks, arXiv:2412.06464, section 3.3; transformers 5.23,
    torch_chunk_gated_delta_rule.
    Leaves out: the padding of the last chunk; decays and norms, which are no matmuls.
    """
    key_heads = config.size("linear_num_key_heads", 16)
    heads = config.size("linear_num_value_heads", 32)
    config.divided("linear_num_value_heads", heads, "linear_num_key_heads", key_heads)
    channels = config.size("linear_key_head_dim", 128)
    value_channels = config.size("linear_value_head_dim", 128)
    values = heads * value_channels
    mixed = 2 * key_heads * channels + values
    inputs = (
        (("in_proj_qkvz", mixed + values), ("in_proj_ba", 2 * heads))
        if is_joint
        else (
            ("in_proj_qkv", mixed),
            ("in_proj_z", values),
            ("in_proj_b", heads),
            ("in_proj_a", heads),
        )
    )
    projections = tuple(
        Linear(name=name, in_features=hidden, out_features=columns) for name, columns in inputs
    )
    names = tuple(name for name, _ in inputs)
    return None, Piece(
        linears=(*projections, Linear(name="out_proj", in_features=values, out_features=hidden)),
        vectors={
            "dt_bias": heads,
            "A_log": heads,
            "conv1d": mixed * config.size("linear_conv_kernel_dim", 4),
            "gated_norm": value_channels,
        },
        scan_flops_per_token=heads
        * (6 * channels * value_channels + CHUNK * (5 * channels + 3 * value_channels)),
        kept=(
            kept.operand("projection_input", hidden, copies=len(inputs), of=names),
            kept.operand("convolution", 2 * mixed),
            *_scanned(heads, channels, value_channels),
            kept.operand("out_proj_input", values, of=("out_proj",)),
        ),
    )


def _scanned(heads: int, channels: int, value_channels: int) -> tuple[Kept, ...]:
    """Return what the scan keeps: tensors that PyTorch's own operations save, counted one by one.

    Fused, what flash-linear-attention keeps: its inputs, and the inverse of each chunk.
    Source: transformers 5.23, torch_chunk_gated_delta_rule and the gated norm after it, counted from the
    tensors that autograd saves; flash-linear-attention, ops/gated_delta_rule/chunk.py.
    """
    keys, values, pairs = heads * channels, heads * value_channels, heads * CHUNK
    states = heads * channels * value_channels / CHUNK
    return (
        kept.counted("chunk_pairs", pairs, (20, 14, 20, 2)),
        kept.counted("scanned_keys", keys, (48, 38, 32, 4)),
        kept.counted("scanned_values", values, (32, 30, 28, 6)),
        kept.counted("chunk_states", states, (4, 8, 4, 0)),
        kept.counted("decays", heads, (40, 38, 38, 8)),
    )
