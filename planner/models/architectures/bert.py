"""BERT and its like: learned positions, post-norm blocks, tied masked-LM head or pooler."""

from collections.abc import Mapping
from dataclasses import field, replace

from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.model import Attention, Linear, Model, Part
from planner.models.architectures import encoders, kept
from planner.models.architectures.config import Config
from planner.models.architectures.family import family_of
from planner.models.architectures.fields import labels
from planner.models.architectures.head_classes import MASKED_LM, OF_TEXTS, task_of

NAMES = encoders.Names(
    query="query",
    key="key",
    value="value",
    output="attention_output",
    up="intermediate",
    down="output",
    attention_norm="attention_LayerNorm",
    mlp_norm="output_LayerNorm",
)

_TASKS = {
    **MASKED_LM,
    **OF_TEXTS,
    "ForPreTraining": "masked-lm",
    "ForNextSentencePrediction": "next-sentence-prediction",
}
_ONE_TOKEN = {"multiple-choice": 1, "next-sentence-prediction": 2}
"""Logits of heads whose number does not follow the labels: of a choice, and whether a sentence follows."""


@frozen
class _Family:
    """How a family differs from BERT; the numbers are transformers' defaults."""

    vocabulary: int = 30522
    hidden: int = 768
    inner: int = 3072
    layers: int = 12
    heads: int = 12
    function: str = "gelu"
    dropout: float = 0.1
    width: int | None = None
    """Default of `embedding_size`, for families whose embeddings are narrower than the trunk."""
    position_offset: int = 0
    """Rows of the position table that padding takes."""
    token_types: int = 2
    """0 for a family without."""
    has_pooler: bool = True
    is_head_bias_tied: bool = True
    """The decoder's bias and the head's own are one tensor, as long as the weights are tied."""
    head_function: str = ""
    """Empty for the trunk's."""
    has_mlp_dropout: bool = True
    drops_pooled: bool = False
    """A dropout comes first in the head of classes."""
    drops_answers: bool = False
    """A dropout comes before the logits of where an answer begins and ends."""
    discriminator: str = ""
    """The class whose head tells replaced tokens from original ones."""
    shares_layers: bool = False
    """A few layers own their parameters, the others run those again; a matrix widens the embeddings."""
    has_relative_bias: bool = False
    """Scores add a bias of the distance, for which there is no fused kernel."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Own names of the common fields."""


def read(name: str, config: Config) -> Model:
    """Return the Model of a bert-like config.json, with the head that `architectures` names.

    A bare `...Model` keeps its pooler and has no head, `ElectraForPreTraining` has a discriminator; where no class is
    named, and of `...ForPreTraining`, the head is that of `...ForMaskedLM`, as the scripts train it: the pooler and the two
    logits that tell whether sentences follow each other are left out.

    Raises:
        InvalidInputError: albert has more groups than layers.
        UnsupportedError: the class has another head.
    """
    family = family_of(_Family, config)
    hidden = _size(config, family, "hidden_size", family.hidden)
    positions = config.size("max_position_embeddings", 512)
    is_discriminator = bool(family.discriminator) and config.head_class() == family.discriminator
    task = "none" if is_discriminator else task_of(config, _TASKS, "masked-lm")
    head = (
        (_discriminator(hidden, _function(config, family)),)
        if is_discriminator
        else _head(config, family, task, hidden)
    )
    layer = _layer(config, family, hidden)
    blocks = _shared_blocks(config, layer) if family.shares_layers else (encoders.block(layer),)
    return Model(
        name=name,
        model_type=config.text("model_type", ""),
        task=task,
        parts=(
            _embeddings(config, family, hidden, positions),
            *blocks,
            *head,
        ),
        vocab_size=config.size("vocab_size", family.vocabulary),
        hidden_size=hidden,
        max_position_embeddings=max(1, positions - family.position_offset),
        has_learned_positions=True,
        config=config.values,
    )


def _size(config: Config, family: _Family, key: str, default: int) -> int:
    own = family.keys.get(key, key)
    return config.size(own, config.size(key, default) if own != key else default)


def _probability(config: Config, family: _Family, key: str) -> float:
    return config.probability(family.keys.get(key, key), family.dropout)


def _function(config: Config, family: _Family) -> str:
    return config.text(family.keys.get("hidden_act", "hidden_act"), family.function)


def _embeddings(config: Config, family: _Family, hidden: int, positions: int) -> Part:
    width = _width(config, family, hidden)
    tables = {
        "word_embeddings": config.size("vocab_size", family.vocabulary) * width,
        "position_embeddings": positions * width,
    }
    if family.token_types:
        types = config.size("type_vocab_size", family.token_types)
        tables["token_type_embeddings"] = types * width
    if family.has_relative_bias:
        buckets = config.size("relative_attention_num_buckets", 32)
        heads = config.size("num_attention_heads", family.heads)
        tables["relative_attention_bias"] = buckets * heads
    dropout = _probability(config, family, "hidden_dropout_prob")
    projection = Linear(
        name="embeddings_project", in_features=width, out_features=hidden, has_bias=True
    )
    is_projected = _is_projected(config, family, hidden)
    return Part(
        name="embeddings",
        linears=(projection,) if is_projected else (),
        tables=tables,
        vectors={"LayerNorm": 2 * width},
        kept=(
            kept.layer_norm("LayerNorm", width),
            *kept.dropout("dropout_mask", width, dropout),
            *((kept.operand("embeddings_project_input", width),) if is_projected else ()),
        ),
    )


def _width(config: Config, family: _Family, hidden: int) -> int:
    return hidden if family.width is None else config.size("embedding_size", family.width)


def _is_projected(config: Config, family: _Family, hidden: int) -> bool:
    """Return whether a matrix widens the embeddings: where layers are shared one always does."""
    return family.shares_layers or _width(config, family, hidden) != hidden


def _layer(config: Config, family: _Family, hidden: int) -> encoders.Layer:
    heads = _size(config, family, "num_attention_heads", family.heads)
    attention_dropout = _probability(config, family, "attention_probs_dropout_prob")
    heads_key = family.keys.get("num_attention_heads", "num_attention_heads")
    hidden_key = family.keys.get("hidden_size", "hidden_size")
    return encoders.Layer(
        count=_size(config, family, "num_hidden_layers", family.layers),
        attention=Attention(
            num_heads=heads,
            num_key_value_heads=heads,
            head_dim=config.divided(hidden_key, hidden, heads_key, heads),
            is_causal=False,
            **kept.scores(attention_dropout, is_upcast=False),
            has_fused_kernel=not family.has_relative_bias,
        ),
        hidden=hidden,
        inner=_size(config, family, "intermediate_size", family.inner),
        activation=_function(config, family),
        names=NAMES,
        dropout=_probability(config, family, "hidden_dropout_prob"),
        mlp_dropout=None if family.has_mlp_dropout else 0.0,
    )


def _shared_blocks(config: Config, layer: encoders.Layer) -> tuple[Part, ...]:
    """Build albert's layers: a few that own their parameters, the others run those again."""
    groups = config.size("num_hidden_groups", 1)
    repeats = config.size("inner_group_num", 1)
    if groups > layer.count:
        raise InvalidInputError(
            f"{config.where}: num_hidden_groups {groups} is more than"
            f" num_hidden_layers {layer.count}",
            field="model",
        )
    owner = replace(encoders.block(layer), count=groups * repeats)
    if groups == layer.count:
        return (owner,)
    repeated = replace(
        owner,
        name="shared_block",
        count=(layer.count - groups) * repeats,
        linears=tuple(replace(linear, is_tied=True, has_bias=False) for linear in owner.linears),
        vectors={},
    )
    return owner, repeated


def _head(config: Config, family: _Family, task: str, hidden: int) -> tuple[Part, ...]:
    dropout = config.probability(
        "classifier_dropout", _probability(config, family, "hidden_dropout_prob")
    )
    if task == "token-classification":
        return (encoders.token_head(hidden, labels(config), dropout),)
    if task == "question-answering":
        dropped = config.probability("qa_dropout", 0.1) if family.drops_answers else 0.0
        return (encoders.token_head(hidden, labels(config), dropped),)
    if task == "sequence-classification":
        drops_first = family.drops_pooled and dropout > 0
        return encoders.sequence_head(hidden, labels(config), drops_first=drops_first)
    if task in _ONE_TOKEN:
        return encoders.sequence_head(hidden, _ONE_TOKEN[task])
    if task == "none":
        return (encoders.classifier("pooler", hidden, hidden),) if family.has_pooler else ()
    vocabulary = config.size("vocab_size", family.vocabulary)
    is_tied = config.flag("tie_word_embeddings", default=True)
    has_second_bias = family.is_head_bias_tied and not is_tied
    return (
        encoders.masked_lm_head(
            hidden,
            _width(config, family, hidden),
            vocabulary,
            family.head_function or _function(config, family),
            is_tied=is_tied,
            second_bias={"bias": vocabulary} if has_second_bias else {},
        ),
    )


def _discriminator(hidden: int, function: str) -> Part:
    """Build electra's discriminator, which tells for each token whether it was replaced."""
    return Part(
        name="head",
        linears=(
            Linear(name="dense", in_features=hidden, out_features=hidden, has_bias=True),
            Linear(name="dense_prediction", in_features=hidden, out_features=1, has_bias=True),
        ),
        kept=(
            kept.operand("dense_input", hidden),
            *kept.activation(function, hidden),
            kept.operand("dense_prediction_input", hidden),
        ),
    )
