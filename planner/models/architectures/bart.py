"""BART and its like (mbart, pegasus): an encoder and a decoder of bert's layers, one word table."""

from collections.abc import Mapping
from dataclasses import replace

from planner.core.frozen import frozen
from planner.domain.model import Attention, Linear, Model, Part
from planner.models.architectures import encoders, kept
from planner.models.architectures.config import Config
from planner.models.architectures.family import family_of
from planner.models.architectures.fields import labels
from planner.models.architectures.head_classes import OF_SEQ2SEQ, task_of

NAMES = encoders.Names(
    output="out_proj", attention_norm="self_attn_layer_norm", mlp_norm="final_layer_norm"
)


@frozen
class _Family:
    """How a family differs from BART."""

    position_offset: int = 2
    """Rows that the position table has beyond max_position_embeddings."""
    has_embedding_norm: bool = True
    has_final_norm: bool = False
    labels: int = 3
    """Of a sequence, where the config names none."""


@frozen
class Defaults:
    """What transformers takes where the config has no size."""

    hidden: int = 1024
    layers: int = 12
    inner: int = 4096
    heads: int = 16
    dropout: float = 0.1


_TASKS = {end: task for end, task in OF_SEQ2SEQ.items() if end != "ForTokenClassification"}
_VOCABULARY = 50265
_BEGIN_AND_END = 2
"""Logits of each token where an answer is looked for, whatever the labels."""


def read(name: str, config: Config) -> Model:
    """Return the Model of a bart-like config.json, with the head that `architectures` names.

    `...Model` has no head; where no class is named it is read as `...ForConditionalGeneration`. Classes are of a
    sequence's last token, answers begin and end in the decoder's. Pegasus' table of sines counts as parameters, as
    transformers counts it; it is never trained.

    Raises:
        UnsupportedError: the class has another head.
    """
    family = family_of(_Family, config)
    hidden = config.size("d_model", 1024)
    vocabulary = config.size("vocab_size", _VOCABULARY)
    positions = config.size("max_position_embeddings", 1024)
    task = task_of(config, _TASKS, "seq2seq-lm")
    words = vocabulary * hidden
    is_tied = config.flag("tie_word_embeddings", default=True)
    own_words = {} if is_tied else {"embed_tokens": words}
    table = {"embed_positions": (positions + family.position_offset) * hidden}
    encoder, decoder = (layer(config, side, Defaults()) for side in ("encoder", "decoder"))
    return Model(
        name=name,
        model_type=config.text("model_type", ""),
        task=task,
        parts=(
            _embeddings(config, family, "encoder", {"shared": words, **own_words, **table}),
            encoders.block(encoder),
            *_final_norm(family, "encoder", hidden),
            _embeddings(config, family, "decoder", {**own_words, **table}),
            decoder_block(decoder),
            *_final_norm(family, "decoder", hidden),
            *_heads(config, family, task, hidden),
        ),
        vocab_size=vocabulary,
        hidden_size=hidden,
        max_position_embeddings=positions,
        has_learned_positions=True,
        config=config.values,
    )


def _heads(config: Config, family: _Family, task: str, hidden: int) -> tuple[Part, ...]:
    if task == "question-answering":
        return (encoders.token_head(hidden, _BEGIN_AND_END, 0.0),)
    if task == "sequence-classification":
        drops_first = config.probability("classifier_dropout") > 0
        logits = labels(config, family.labels)
        return encoders.sequence_head(hidden, logits, drops_first=drops_first)
    is_tied = config.flag("tie_word_embeddings", default=True)
    vocabulary = config.size("vocab_size", _VOCABULARY)
    return (head(hidden, vocabulary, is_tied=is_tied),) if task == "seq2seq-lm" else ()


def layer(config: Config, side: str, defaults: Defaults) -> encoders.Layer:
    """Return the sizes of the encoder's or the decoder's layers."""
    hidden = config.size("d_model", defaults.hidden)
    heads_key = f"{side}_attention_heads"
    heads = config.size(heads_key, defaults.heads)
    return encoders.Layer(
        name=f"{side}_block",
        count=config.size(f"{side}_layers", defaults.layers),
        attention=Attention(
            num_heads=heads,
            num_key_value_heads=heads,
            head_dim=config.divided("d_model", hidden, heads_key, heads),
            is_causal=side == "decoder",
            **kept.scores(config.probability("attention_dropout"), is_upcast=False),
        ),
        hidden=hidden,
        inner=config.size(f"{side}_ffn_dim", defaults.inner),
        activation=config.text("activation_function", "gelu"),
        names=NAMES,
        dropout=config.probability("dropout", defaults.dropout),
        activation_dropout=config.probability("activation_dropout"),
    )


def decoder_block(sizes: encoders.Layer) -> Part:
    """Build a decoder layer: an encoder's, and cross-attention between attention and MLP."""
    plain = encoders.block(sizes)
    crossed = encoders.projections(sizes, prefix="encoder_attn_")
    hidden = sizes.hidden
    return replace(
        plain,
        linears=(*plain.linears, *encoders.of_source(crossed, "k_proj", "v_proj")),
        is_target=True,
        cross_attention=encoders.crossing(sizes.attention),
        vectors={**plain.vectors, "encoder_attn_layer_norm": 2 * hidden},
        kept=(
            *plain.kept,
            *encoders.cross_attention_kept(hidden, sizes.attention.query_size, sizes.dropout),
            kept.layer_norm("encoder_attn_layer_norm", hidden),
        ),
    )


def head(hidden: int, vocabulary: int, *, is_tied: bool) -> Part:
    """Build the head: the word table once more."""
    lm_head = Linear(name="lm_head", in_features=hidden, out_features=vocabulary, is_tied=is_tied)
    seen = kept.operand("lm_head_input", hidden)
    return Part(name="head", is_target=True, linears=(lm_head,), kept=(seen,))


def _embeddings(config: Config, family: _Family, side: str, tables: Mapping[str, int]) -> Part:
    hidden = config.size("d_model", 1024)
    norm = "layernorm_embedding"
    dropout = config.probability("dropout", 0.1)
    return Part(
        name=f"{side}_embeddings",
        is_target=side == "decoder",
        tables=tables,
        vectors={norm: 2 * hidden} if family.has_embedding_norm else {},
        kept=(
            *((kept.layer_norm(norm, hidden),) if family.has_embedding_norm else ()),
            *kept.dropout("dropout_mask", hidden, dropout),
            *((encoders.shared_encoder_output(hidden),) if side == "decoder" else ()),
        ),
    )


def _final_norm(family: _Family, side: str, hidden: int) -> tuple[Part, ...]:
    norm = encoders.norm_part(f"{side}_layer_norm", hidden)
    norm = replace(norm, is_target=side == "decoder")
    return (norm,) if family.has_final_norm else ()
