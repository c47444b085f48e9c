"""Qwen3.5's text model: most layers mix tokens by a gated delta rule, every n-th by attention."""

from dataclasses import replace
from functools import partial

from planner.domain.model import Attention, Linear, Model
from planner.models.architectures import kept
from planner.models.architectures.config import Config
from planner.models.architectures.decoder import (
    DecoderFamily,
    Mlp,
    Piece,
    Stack,
    assemble,
    attention_piece,
    dense_mlp,
    scores,
    size,
)
from planner.models.architectures.experts import Routing, expert_mlp
from planner.models.architectures.norms import Norm

FAMILY = DecoderFamily(
    defaults={
        "vocabulary": 248320,
        "hidden": 4096,
        "layers": 32,
        "heads": 16,
        "groups": 4,
        "head_dim": 256,
        "inner": 12288,
        "positions": 32768,
    },
    norm=Norm.RMS_FP32,
    qkv_bias=("attention_bias", False),
    output_bias=("attention_bias", False),
    query_key_norm="head",
)
MIXTURE = replace(FAMILY, defaults={**FAMILY.defaults, "hidden": 2048, "layers": 40, "groups": 2})
ROUTING = Routing(
    defaults={"experts": 256, "per_token": 8, "inner": 512},
    shared_inner=lambda config, _inner: config.size("shared_expert_intermediate_size", 512),
    has_shared_gate=True,
)
_INTERVAL = 4


def gated_attention(family: DecoderFamily, config: Config, hidden: int) -> tuple[Attention, Piece]:
    """Return attention whose output is scaled by a gate that grows beside the queries."""
    attention = scores(family, config, hidden)
    piece = attention_piece(family, config, attention, hidden)
    query, *others = piece.linears
    widened = replace(query, out_features=2 * query.out_features)
    gate = kept.operand("output_gate", 2 * attention.query_size)
    return attention, replace(piece, linears=(widened, *others), kept=(*piece.kept, gate))


def delta_rule(family: DecoderFamily, config: Config, hidden: int) -> tuple[None, Piece]:
    """Return the linear attention of a gated delta net.

    What it keeps is an estimate: inputs and outputs of its projections, convolution, norms and
    gate. Its chunked state is left out, and so are the FLOPs of the recurrence.
    Source: Yang et al., Gated Delta Networks, arXiv:2412.06464.
    """
    key_heads = config.size("linear_num_key_heads", 16)
    value_heads = config.size("linear_num_value_heads", 32)
    keys = key_heads * config.size("linear_key_head_dim", 128)
    value_channels = config.size("linear_value_head_dim", 128)
    values = value_heads * value_channels
    mixed = 2 * keys + values
    shapes = (
        ("in_proj_qkv", hidden, mixed),
        ("in_proj_z", hidden, values),
        ("in_proj_b", hidden, value_heads),
        ("in_proj_a", hidden, value_heads),
        ("out_proj", values, hidden),
    )
    return None, Piece(
        linears=tuple(
            Linear(name=name, in_features=rows, out_features=columns)
            for name, rows, columns in shapes
        ),
        vectors={
            "dt_bias": value_heads,
            "A_log": value_heads,
            "conv1d": mixed * config.size("linear_conv_kernel_dim", 4),
            "norm": value_channels,
        },
        kept=(
            kept.operand("projection_input", hidden, copies=4),
            kept.operand("convolution", 2 * mixed),
            kept.operand("query_key_value", mixed),
            family.norm.kept("norm", values),
            kept.operand("gate", 2 * values),
            kept.operand("out_proj_input", values),
        ),
    )


def read_hybrid(family: DecoderFamily, mlp: Mlp, name: str, config: Config) -> Model:
    """Return the Model of a qwen3_5 text config, with that MLP in every layer."""
    layers = size(family, config, "layers")
    kinds = config.values.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == layers:
        full = sum(kind == "full_attention" for kind in kinds)
    else:
        full = layers // config.size("full_attention_interval", _INTERVAL)
    linear = Stack(count=layers - full, mixer=delta_rule, mlp=mlp, name="linear_block")
    attending = Stack(count=full, mixer=gated_attention, mlp=mlp)
    return assemble(family, name, config, [linear, attending])


read_dense = partial(read_hybrid, FAMILY, dense_mlp)
read_mixture = partial(read_hybrid, MIXTURE, partial(expert_mlp, ROUTING))
