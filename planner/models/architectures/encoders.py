"""Transformer layers with layer norms and a plain MLP, as encoders and seq2seq models have them.

Pre-norm and post-norm layers keep the same tensors: two norm inputs and the two normalised states
that the projections read. So one description serves bert and vit, bart and clip alike.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from planner.core.frozen import frozen
from planner.domain.kept import Kept
from planner.domain.model import Attention, Linear, Part
from planner.models.architectures import kept, work


def bidirectional(heads: int, head_dim: int, dropout: float, *, is_upcast: bool) -> Attention:
    """Build attention whose queries see all of a sequence, with as many heads of keys.

    Args:
        heads: of queries.
        head_dim: channels of each.
        dropout: of the probabilities.
        is_upcast: the softmax runs in fp32, and is cast back.
    """
    return Attention(
        num_heads=heads,
        num_key_value_heads=heads,
        head_dim=head_dim,
        is_causal=False,
        **kept.scores(dropout, is_upcast=is_upcast),
    )


@frozen
class Names:
    """What the modelling code calls a layer's matrices and norms."""

    query: str = "q_proj"
    key: str = "k_proj"
    value: str = "v_proj"
    output: str = "o_proj"
    up: str = "fc1"
    down: str = "fc2"
    attention_norm: str = "layernorm_before"
    mlp_norm: str = "layernorm_after"


@frozen
class Layer:
    """The sizes of a layer, and what its operations drop and bias."""

    count: int
    attention: Attention
    hidden: int
    inner: int
    activation: str
    names: Names
    name: str = "block"
    dropout: float = 0.0
    mlp_dropout: float | None = None
    """Of the MLP's output; None for the same as after attention."""
    activation_dropout: float = 0.0
    has_qkv_bias: bool = True
    has_key_bias: bool = True
    tokens_per_sequence: int | None = None


def block(layer: Layer) -> Part:
    """Build a layer: self-attention and MLP, each with its layer norm."""
    hidden, names = layer.hidden, layer.names
    return Part(
        name=layer.name,
        is_block=True,
        count=layer.count,
        tokens_per_sequence=layer.tokens_per_sequence,
        linears=(*projections(layer), *_mlp(layer)),
        vectors={names.attention_norm: 2 * hidden, names.mlp_norm: 2 * hidden},
        attention=layer.attention,
        kept=(*attention_kept(layer), *mlp_kept(layer)),
    )


def projections(layer: Layer, prefix: str = "") -> tuple[Linear, ...]:
    """Build the four matrices of self-attention."""
    hidden, size, names = layer.hidden, layer.attention.query_size, layer.names
    has_bias = layer.has_qkv_bias
    shapes = (
        (names.query, hidden, size, has_bias),
        (names.key, hidden, size, has_bias and layer.has_key_bias),
        (names.value, hidden, size, has_bias),
        (names.output, size, hidden, True),
    )
    return tuple(
        Linear(name=prefix + name, in_features=rows, out_features=columns, has_bias=bias)
        for name, rows, columns, bias in shapes
    )


def _mlp(layer: Layer) -> tuple[Linear, ...]:
    shapes = (
        (layer.names.up, layer.hidden, layer.inner),
        (layer.names.down, layer.inner, layer.hidden),
    )
    return tuple(
        Linear(name=name, in_features=rows, out_features=columns, has_bias=True)
        for name, rows, columns in shapes
    )


def attention_kept(layer: Layer) -> tuple[Kept, ...]:
    """Build what self-attention keeps, scores left out: operands, dropout mask, norm."""
    hidden, size = layer.hidden, layer.attention.query_size
    return (
        kept.operand("query_key_value_input", hidden, copies=3),
        kept.operand("query_key_value", 3 * size, does=work.NONE),
        kept.operand("attention_output", size, does=work.NONE),
        *kept.dropout("attention_dropout_mask", hidden, layer.dropout),
        kept.layer_norm(layer.names.attention_norm, hidden),
    )


def mlp_kept(layer: Layer) -> tuple[Kept, ...]:
    """Build what the MLP keeps: operands, what the activation needs, dropout masks, norm."""
    hidden, inner, names = layer.hidden, layer.inner, layer.names
    dropout = layer.dropout if layer.mlp_dropout is None else layer.mlp_dropout
    # relu keeps its output alone.
    down = work.kernel(inner) if layer.activation == "relu" else work.NONE
    return (
        kept.operand(f"{names.up}_input", hidden),
        *activation(layer.activation, inner, layer.activation_dropout),
        *kept.dropout("activation_dropout_mask", inner, layer.activation_dropout),
        kept.operand(f"{names.down}_input", inner, does=down),
        *kept.dropout("mlp_dropout_mask", hidden, dropout),
        kept.layer_norm(names.mlp_norm, hidden),
    )


def activation(function: str, size: int, dropout: float) -> tuple[Kept, ...]:
    """Build what an activation keeps before a dropout of that probability.

    `relu` keeps its output: the next matmul's operand itself, unless a dropout comes between.
    `quick_gelu` is spelled out in Python and keeps its input and the sigmoid.
    """
    if function == "relu":
        return (kept.operand("relu_output", size, does=work.NONE),) if dropout else ()
    if function == "quick_gelu":
        return (
            kept.operand("quick_gelu_input", size, does=work.kernel(size)),
            kept.operand("quick_gelu_sigmoid", size, does=work.product(size)),
        )
    return kept.activation(function, size)


def norm_part(name: str, hidden: int, tokens_per_sequence: int | None = None) -> Part:
    """Build the layer norm that follows the last layer."""
    return Part(
        name=name,
        tokens_per_sequence=tokens_per_sequence,
        vectors={name: 2 * hidden},
        kept=(kept.layer_norm(name, hidden),),
    )


def classifier(name: str, in_features: int, out_features: int, *, has_bias: bool = True) -> Part:
    """Build a matrix that sees one token per sequence: a pooler or a classifier.

    It keeps next to nothing.
    """
    layer = Linear(name=name, in_features=in_features, out_features=out_features, has_bias=has_bias)
    return Part(name=name, tokens_per_sequence=1, linears=(layer,))


def sequence_head(
    hidden: int, labels: int, *, has_dense_bias: bool = True, drops_first: bool = False
) -> tuple[Part, ...]:
    """Build the head that classifies a sequence by one of its tokens: dense, activation, classifier.

    It has as many logits as classes, and keeps next to nothing of its own. But the token that the
    dense layer reads is a view of the whole last hidden state, which it so keeps, unless a cast or
    a dropout before it makes a copy.

    Args:
        hidden: of the trunk.
        labels: the number of classes.
        has_dense_bias: the dense layer has a bias.
        drops_first: a dropout comes before the dense layer.
    """
    head = Part(
        name="head",
        tokens_per_sequence=1,
        linears=(
            Linear(name="dense", in_features=hidden, out_features=hidden, has_bias=has_dense_bias),
            Linear(name="classifier", in_features=hidden, out_features=labels, has_bias=True),
        ),
    )
    viewed = Kept(name="last_hidden_state", bytes_per_token=(4 * hidden, 0, 2 * hidden))
    return (head,) if drops_first else (Part(name="pooled", kept=(viewed,)), head)


def token_head(hidden: int, labels: int, dropout: float) -> Part:
    """Build the head that classifies every token: a dropout, and one matrix."""
    classifier = Linear(name="classifier", in_features=hidden, out_features=labels, has_bias=True)
    return Part(
        name="head",
        linears=(classifier,),
        kept=(
            *kept.dropout("head_dropout_mask", hidden, dropout),
            kept.operand("classifier_input", hidden),
        ),
    )


def masked_lm_head(  # noqa: PLR0913 - a head's sizes and ties are six facts
    hidden: int,
    width: int,
    vocabulary: int,
    function: str,
    *,
    is_tied: bool,
    second_bias: Mapping[str, int],
) -> Part:
    """Build the head of masked-language models: dense, activation, layer norm, decoder.

    Args:
        hidden: of the trunk.
        width: of the embeddings, which the decoder's weight is tied to.
        vocabulary: rows of the decoder.
        function: the activation.
        is_tied: the decoder's weight is the embedding table.
        second_bias: the head's own bias, where it is not tied to the decoder's.
    """
    return Part(
        name="head",
        linears=(
            Linear(name="transform", in_features=hidden, out_features=width, has_bias=True),
            Linear(
                name="decoder",
                in_features=width,
                out_features=vocabulary,
                has_bias=True,
                is_tied=is_tied,
            ),
        ),
        vectors={"LayerNorm": 2 * width, **second_bias},
        kept=(
            kept.operand("transform_input", hidden),
            *activation(function, width, 0.0),
            kept.layer_norm("LayerNorm", width),
            kept.operand("decoder_input", width),
        ),
    )


def cross_attention_kept(hidden: int, size: int, dropout: float) -> tuple[Kept, ...]:
    """Build what a decoder's attention to the encoder keeps, its norm and scores left out.

    The encoder's output is one tensor for all layers (`shared_encoder_output`), but autocast casts it
    once for each key and value matrix.
    """
    casts = Kept(
        name="cross_key_value_input", bytes_per_token=(0, 4 * hidden, 0), reads_source=True
    )
    return (
        kept.operand("cross_query_input", hidden),
        casts,
        kept.operand("cross_query", size, does=work.NONE),
        replace(kept.operand("cross_key_value", 2 * size, does=work.NONE), reads_source=True),
        kept.operand("cross_attention_output", size, does=work.NONE),
        *kept.dropout("cross_attention_dropout_mask", hidden, dropout),
    )


def shared_encoder_output(hidden: int) -> Kept:
    """Build the encoder's output, which the cross-attention of all decoder layers reads."""
    size = (4 * hidden, 0, 2 * hidden)
    return Kept(name="encoder_output", bytes_per_token=size, reads_source=True)


def of_source(linears: Iterable[Linear], *ends: str) -> tuple[Linear, ...]:
    """Return matrices of which those that are called so see the encoder's tokens."""
    return tuple(replace(each, reads_source=each.name.endswith(ends)) for each in linears)


def crossing(attention: Attention) -> Attention:
    """Return a decoder's attention to the encoder, with the heads of its own."""
    return replace(attention, is_causal=False, reads_source=True)
