"""A decoder's layer: attention with one key-value head per group of query heads, and its MLP."""

from dataclasses import replace

from planner.domain.kept import Kept, Share
from planner.domain.model import Attention, Linear
from planner.models.architectures import kept, work
from planner.models.architectures.config import Config
from planner.models.architectures.decoder_family import (
    SPELLINGS,
    DecoderFamily,
    dropout,
    flag,
    rotated_share,
    size,
)
from planner.models.architectures.norms import query_key_norms
from planner.models.architectures.pieces import Piece, with_mlp

MLP_INNER = "mlp_inner"
"""What an MLP's last matmul reads."""
EXPERT_OUTPUT = "expert_output"
"""What the router's weights multiply, where they do so after it."""


def grouped_attention(
    family: DecoderFamily, config: Config, hidden: int
) -> tuple[Attention, Piece]:
    """Return attention with one key-value head per group of query heads."""
    attention = scores(family, config, hidden)
    return attention, attention_piece(family, config, attention, hidden)


def scores(family: DecoderFamily, config: Config, hidden: int) -> Attention:
    """Return the heads that the config names."""
    heads = size(family, config, "heads")
    is_silent = all(key not in config.values for key in SPELLINGS["groups"])
    groups = size(replace(family, defaults={}), config, "groups", heads)
    if not config.flag("multi_query", default=True):
        groups = heads
    elif is_silent:
        groups = family.defaults.get("groups", heads)
    config.divided("num_attention_heads", heads, "num_key_value_heads", groups)
    if config.values.get("head_dim") is None and "head_dim" not in family.defaults:
        head_dim = config.divided("hidden_size", hidden, "num_attention_heads", heads)
    else:
        head_dim = config.size("head_dim", family.defaults.get("head_dim"))
    return Attention(
        num_heads=heads,
        num_key_value_heads=groups,
        head_dim=head_dim,
        is_causal=True,
        retained_size=_retained(family, heads, groups) * head_dim,
        **kept.scores(dropout(family, config, 2), is_upcast=family.upcasts_softmax),
    )


def _retained(family: DecoderFamily, heads: int, groups: int) -> int:
    """Return the heads whose channels fused kernels keep alive besides: of the whole projection, or the output's copy."""
    shared = heads + groups if family.keeps_fused_projection else 0
    return shared + (heads if family.turns_part else 0)


def attention_piece(
    family: DecoderFamily, config: Config, attention: Attention, hidden: int
) -> Piece:
    """Return the matrices around the scores, and what they keep."""
    inputs = _attention_inputs(family, config, attention, hidden)
    output = Linear(
        name="o_proj",
        in_features=attention.query_size,
        out_features=hidden,
        most_splits=attention.num_heads,
        cuts_inputs=True,
        has_bias=flag(config, family.output_bias),
    )
    flag_name = family.query_key_norm_flag
    has_norms = not flag_name or config.flag(flag_name, default=False)
    norms = query_key_norms(family.query_key_norm if has_norms else "", attention)
    return Piece(
        linears=(*inputs, output),
        vectors={
            f"{name}_norm": family.norm.parameters_per_channel * channels
            for name, channels, _ in norms
        }
        | ({"sinks": attention.num_heads} if family.has_sinks else {}),
        kept=(
            _operand_of(inputs, "qkv_input", hidden),
            *(
                replace(family.norm.kept(f"{name}_norm", width), share=Share.SPLIT)
                for name, _, width in norms
            ),
            *_heads_kept(family, config, attention),
            kept.operand(
                "attention_output",
                attention.query_size,
                share=Share.SPLIT,
                of=("o_proj",),
                does=work.NONE,
            ),
            *kept.dropout("attention_dropout_mask", hidden, dropout(family, config, 1)),
        ),
    )


def _heads_kept(family: DecoderFamily, config: Config, attention: Attention) -> tuple[Kept, ...]:
    """Return queries, and keys and values; rotated where positions are no table and no bias of the scores."""
    share, size = rotated_share(family, config), attention.query_size
    keys = work.rotated(attention.key_value_size, share)
    if family.is_fused:
        keys = keys + work.split(size, 2 if family.keeps_fused_projection else 1)
    return (
        kept.operand("query", size, share=Share.SPLIT, does=work.rotated(size, share)),
        kept.operand(
            "key_value",
            2 * attention.key_value_size,
            share=Share.SPLIT,
            does=keys,
        ),
    )


def _attention_inputs(
    family: DecoderFamily, config: Config, attention: Attention, hidden: int
) -> tuple[Linear, ...]:
    """Return the matrices that make queries, keys and values, in one where they are fused."""
    query, key_value = attention.query_size, attention.key_value_size
    shapes = [("q_proj", query), ("k_proj", key_value), ("v_proj", key_value)]
    if family.is_fused:
        shapes = [("qkv_proj", query + 2 * key_value)]
    return tuple(
        Linear(
            name=name,
            in_features=hidden,
            out_features=columns,
            has_bias=flag(config, family.qkv_bias),
            most_splits=attention.num_heads if name[0] == "q" else attention.num_key_value_heads,
        )
        for name, columns in shapes
    )


def _operand_of(linears: tuple[Linear, ...], name: str, width: int) -> Kept:
    names = tuple(layer.name for layer in linears)
    return kept.operand(name, width, copies=len(linears), share=Share.INPUT, of=names)


def dense_mlp(family: DecoderFamily, config: Config, hidden: int) -> Piece:
    """Return the family's own MLP, gated or plain."""
    inner = size(family, config, "inner", 4 * hidden)
    return with_mlp(mlp(family, config, hidden, inner))


def mlp(family: DecoderFamily, config: Config, hidden: int, inner: int, prefix: str = "") -> Piece:
    """Return an MLP of that inner size."""
    has_bias = flag(config, family.mlp_bias)
    inputs = tuple(
        Linear(
            name=prefix + name,
            in_features=hidden,
            out_features=columns,
            has_bias=has_bias,
            most_splits=inner,
        )
        for name, columns in _mlp_shapes(family, inner)
    )
    output = Linear(
        name=prefix + ("down_proj" if family.is_gated else "fc_out"),
        in_features=inner,
        out_features=hidden,
        has_bias=has_bias,
        most_splits=inner,
        cuts_inputs=True,
    )
    function = config.text("hidden_act", config.text("activation_function", family.activation))
    # relu keeps its output itself.
    inner_work = work.kernel(inner) if function == "relu" else work.NONE
    operand_of = () if function == "relu" else (output.name,)
    return Piece(
        linears=(*inputs, output),
        kept=(
            _mlp_input(family, config, hidden, inputs),
            *kept.activation(function, inner),
            *(kept.gate(inner) if family.is_gated else ()),
            kept.operand(MLP_INNER, inner, share=Share.SPLIT, of=operand_of, does=inner_work),
            *kept.dropout("mlp_dropout_mask", hidden, dropout(family, config, 1)),
        ),
    )


def _mlp_shapes(family: DecoderFamily, inner: int) -> tuple[tuple[str, int], ...]:
    if not family.is_gated:
        return (("fc_in", inner),)
    if family.is_fused or family.fuses_gate:
        return (("gate_up_proj", 2 * inner),)
    return (("gate_proj", inner), ("up_proj", inner))


def _mlp_input(
    family: DecoderFamily, config: Config, hidden: int, inputs: tuple[Linear, ...]
) -> Kept:
    """Return what the MLP's matrices keep of their input.

    Where attention reads the very same tensor, only autocast's own casts are added. Where two norms
    read it they keep it once, but attention's output is kept in the layout of its heads besides.
    """
    entry = _operand_of(inputs, "mlp_input", hidden)
    if family.is_parallel and len(family.norms) == 1:
        return replace(entry, bytes_per_token=(0, entry.bytes_per_token[1], 0))
    if family.is_parallel and config.flag("use_parallel_residual", default=True):
        return replace(entry, bytes_per_token=(4 * hidden, 0, 2 * hidden))
    return entry
