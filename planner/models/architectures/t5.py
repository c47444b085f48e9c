"""T5 and its like (mt5): RMSNorm, relative positions, an encoder and a decoder, perhaps a gated MLP."""

from collections.abc import Mapping

from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.kept import Kept
from planner.domain.model import Attention, Linear, Model, Part
from planner.models.architectures import encoders, kept, work
from planner.models.architectures.config import Config
from planner.models.architectures.family import family_of
from planner.models.architectures.fields import labels
from planner.models.architectures.head_classes import OF_SEQ2SEQ, task_of


@frozen
class _Family:
    """What transformers takes where the config is silent."""

    vocabulary: int
    inner: int
    layers: int
    heads: int
    mlp: str
    """As `feed_forward_proj` says it."""


@frozen
class _Sizes:
    """What encoder and decoder layers share."""

    hidden: int
    inner: int
    heads: int
    head_dim: int
    function: str
    is_gated: bool
    dropout: float

    @property
    def query_size(self) -> int:
        return self.heads * self.head_dim


def read(name: str, config: Config) -> Model:
    """Return the Model of a t5 or mt5 config.json, with the head that `architectures` names.

    `...EncoderModel` and `...ForTokenClassification` have no decoder, `...Model` has no head; where no class is named it is
    read as `...ForConditionalGeneration`. T5 v1.1, flan-T5 and mT5 checkpoints have a head of their own,
    which `tie_word_embeddings: false` says; transformers 5 ties it all the same.

    Raises:
        InvalidInputError: feed_forward_proj is neither an activation nor `gated-` and one.
        UnsupportedError: the class has another head.
    """
    family = family_of(_Family, config)
    sizes = _sizes(config, family)
    vocabulary = config.size("vocab_size", family.vocabulary)
    layers = config.size("num_layers", family.layers)
    task = task_of(config, {**OF_SEQ2SEQ, "EncoderModel": "none"}, "seq2seq-lm")
    is_encoder = config.head_class().endswith("EncoderModel") or task == "token-classification"
    decoder = _decoder(config, sizes, config.size("num_decoder_layers", layers))
    return Model(
        name=name,
        model_type=config.text("model_type", ""),
        task=task,
        parts=(
            *_encoder(config, sizes, vocabulary, layers),
            *(() if is_encoder else decoder),
            *_heads(config, task, sizes, vocabulary),
        ),
        vocab_size=vocabulary,
        hidden_size=sizes.hidden,
        max_position_embeddings=config.size("n_positions", 512),
        config=config.values,
    )


def _sizes(config: Config, family: _Family) -> _Sizes:
    projection = config.text("feed_forward_proj", family.mlp)
    gate, _, function = projection.rpartition("-")
    if gate not in {"", "gated"} or not function:
        raise InvalidInputError(
            f"{config.where}: feed_forward_proj is {projection[:60]!r};"
            " it must be an activation, or gated- and one",
            field="model",
        )
    return _Sizes(
        hidden=config.size("d_model", 512),
        inner=config.size("d_ff", family.inner),
        heads=config.size("num_heads", family.heads),
        head_dim=config.size("d_kv", 64),
        function="gelu_new" if projection == "gated-gelu" else function,
        is_gated=gate == "gated",
        dropout=config.probability("dropout_rate", 0.1),
    )


def _encoder(config: Config, sizes: _Sizes, vocabulary: int, layers: int) -> tuple[Part, ...]:
    hidden = sizes.hidden
    embeddings = Part(
        name="embeddings",
        tables={"shared": vocabulary * hidden, **_relative_positions(config, sizes)},
        kept=kept.dropout("dropout_mask", hidden, sizes.dropout),
    )
    block = Part(
        name="encoder_block",
        is_block=True,
        count=layers,
        linears=(*_projections(sizes, "SelfAttention_"), *_mlp(sizes)),
        vectors={"SelfAttention_layer_norm": hidden, "DenseReluDense_layer_norm": hidden},
        attention=_attention(sizes, is_causal=False),
        kept=(*_attention_kept(sizes, "SelfAttention"), *_mlp_kept(sizes)),
    )
    return embeddings, block, _final_norm(sizes, "encoder")


def _decoder(config: Config, sizes: _Sizes, layers: int) -> tuple[Part, ...]:
    hidden = sizes.hidden
    embeddings = Part(
        name="decoder_embeddings",
        is_target=True,
        tables=_relative_positions(config, sizes),
        kept=(
            *kept.dropout("dropout_mask", hidden, sizes.dropout),
            encoders.shared_encoder_output(hidden),
        ),
    )
    block = Part(
        name="decoder_block",
        is_block=True,
        count=layers,
        linears=(
            *_projections(sizes, "SelfAttention_"),
            *encoders.of_source(_projections(sizes, "EncDecAttention_"), "_k", "_v"),
            *_mlp(sizes),
        ),
        vectors={
            "SelfAttention_layer_norm": hidden,
            "EncDecAttention_layer_norm": hidden,
            "DenseReluDense_layer_norm": hidden,
        },
        is_target=True,
        attention=_attention(sizes, is_causal=True),
        cross_attention=encoders.crossing(_attention(sizes, is_causal=False)),
        kept=(
            *_attention_kept(sizes, "SelfAttention"),
            *_cross_attention_kept(sizes),
            *_mlp_kept(sizes),
        ),
    )
    return embeddings, block, _final_norm(sizes, "decoder")


def _heads(config: Config, task: str, sizes: _Sizes, vocabulary: int) -> tuple[Part, ...]:
    dropout = config.probability("classifier_dropout")
    if task == "sequence-classification":
        return encoders.sequence_head(sizes.hidden, labels(config), drops_first=dropout > 0)
    if task in {"token-classification", "question-answering"}:
        dropped = dropout if task == "token-classification" else 0.0
        return (encoders.token_head(sizes.hidden, labels(config), dropped),)
    return (_head(config, sizes, vocabulary),) if task == "seq2seq-lm" else ()


def _head(config: Config, sizes: _Sizes, vocabulary: int) -> Part:
    hidden = sizes.hidden
    return Part(
        name="head",
        is_target=True,
        linears=(
            Linear(
                name="lm_head",
                in_features=hidden,
                out_features=vocabulary,
                is_tied=config.flag("tie_word_embeddings", default=True),
            ),
        ),
        kept=(kept.operand("lm_head_input", hidden),),
    )


def _final_norm(sizes: _Sizes, side: str) -> Part:
    name, hidden = f"{side}_final_layer_norm", sizes.hidden
    return Part(
        name=name,
        is_target=side == "decoder",
        vectors={name: hidden},
        kept=(_norm(name, hidden), *kept.dropout("dropout_mask", hidden, sizes.dropout)),
    )


def _relative_positions(config: Config, sizes: _Sizes) -> Mapping[str, int]:
    buckets = config.size("relative_attention_num_buckets", 32)
    return {"relative_attention_bias": buckets * sizes.heads}


def _attention(sizes: _Sizes, *, is_causal: bool) -> Attention:
    return Attention(
        num_heads=sizes.heads,
        num_key_value_heads=sizes.heads,
        head_dim=sizes.head_dim,
        is_causal=is_causal,
        **kept.scores(sizes.dropout, is_upcast=False),
    )


def _projections(sizes: _Sizes, prefix: str) -> tuple[Linear, ...]:
    hidden, size = sizes.hidden, sizes.query_size
    shapes = (("q", hidden, size), ("k", hidden, size), ("v", hidden, size), ("o", size, hidden))
    return tuple(
        Linear(name=prefix + name, in_features=rows, out_features=columns)
        for name, rows, columns in shapes
    )


def _mlp(sizes: _Sizes) -> tuple[Linear, ...]:
    hidden, inner = sizes.hidden, sizes.inner
    ups = ("wi_0", "wi_1") if sizes.is_gated else ("wi",)
    return (
        *(Linear(name=up, in_features=hidden, out_features=inner) for up in ups),
        Linear(name="wo", in_features=inner, out_features=hidden),
    )


def _norm(name: str, size: int) -> Kept:
    """Build the entry of T5's RMSNorm: its input and the normalised input.

    In 16 bit it squares an fp32 copy, and scales the input itself; both are kept.
    """
    each = 8 * size + 4
    return Kept(
        name=name,
        bytes_per_token=(each, each, each),
        work=work.rms_norm(size),
        compiled_bytes_per_token=(4 * size + 4, 4 * size + 4, 2 * size + 4),
    )


def _attention_kept(sizes: _Sizes, name: str) -> tuple[Kept, ...]:
    hidden, size = sizes.hidden, sizes.query_size
    return (
        _norm(f"{name}_layer_norm", hidden),
        kept.operand(f"{name}_input", hidden, copies=3),
        kept.operand(f"{name}_query_key_value", 3 * size, does=work.NONE),
        kept.operand(f"{name}_output", size, does=work.NONE),
        *kept.dropout(f"{name}_dropout_mask", hidden, sizes.dropout),
    )


def _cross_attention_kept(sizes: _Sizes) -> tuple[Kept, ...]:
    hidden, size = sizes.hidden, sizes.query_size
    return (
        _norm("EncDecAttention_layer_norm", hidden),
        *encoders.cross_attention_kept(hidden, size, sizes.dropout),
    )


def _mlp_kept(sizes: _Sizes) -> tuple[Kept, ...]:
    hidden, inner = sizes.hidden, sizes.inner
    # relu keeps its output alone.
    inner_work = work.kernel(inner) if sizes.function == "relu" else work.NONE
    return (
        _norm("DenseReluDense_layer_norm", hidden),
        kept.operand("wi_input", hidden, copies=2 if sizes.is_gated else 1),
        *_gate_kept(sizes),
        *kept.dropout("wo_input_dropout_mask", inner, sizes.dropout),
        kept.operand("wo_input", inner, does=inner_work),
        *kept.dropout("DenseReluDense_dropout_mask", hidden, sizes.dropout),
    )


def _gate_kept(sizes: _Sizes) -> tuple[Kept, ...]:
    """Build what the activation keeps, and the gate where there is one.

    Autocast leaves the output of `gelu_new` in fp32, for its third power runs in fp32.
    """
    inner = sizes.inner
    if not sizes.is_gated:
        return encoders.activation(sizes.function, inner, sizes.dropout)
    wide = 4 if sizes.function == "gelu_new" else 2
    activated = Kept(
        name="wi_0_activated",
        bytes_per_token=(4 * inner, wide * inner, 2 * inner),
        work=work.product(inner),
        compiled_bytes_per_token=(0,),
    )
    inputs = () if sizes.function == "relu" else kept.activation(sizes.function, inner)
    return (*inputs, activated, kept.operand("wi_1", inner, does=work.NONE))
