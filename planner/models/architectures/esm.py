"""ESM-2: bert's layers with norms before them, over the letters of proteins, and positions that rotate."""

from planner.core.frozen import frozen
from planner.domain.model import Model, Part
from planner.models.architectures import encoders, kept
from planner.models.architectures.bert import NAMES
from planner.models.architectures.config import Config
from planner.models.architectures.family import family_of
from planner.models.architectures.fields import labels
from planner.models.architectures.head_classes import MASKED_LM, OF_TEXTS, task_of

_TASKS = {
    **MASKED_LM,
    **{end: OF_TEXTS[end] for end in ("ForSequenceClassification", "ForTokenClassification")},
}


@frozen
class _Family:
    """What transformers takes where the config is silent."""

    vocabulary: int
    positions: int
    dropout: float


def read(name: str, config: Config) -> Model:
    """Return the Model of an esm config.json, with the head that `architectures` names.

    Where no class is named it is read as `EsmForMaskedLM`. The matrix that predicts contacts counts as transformers
    counts it; it is never trained.

    Raises:
        UnsupportedError: the class has another head.
    """
    family = family_of(_Family, config)
    hidden = config.size("hidden_size", 768)
    positions = config.size("max_position_embeddings", family.positions)
    is_absolute = config.text("position_embedding_type", "absolute") == "absolute"
    vocabulary = config.size("vocab_size", family.vocabulary)
    task = task_of(config, _TASKS, "masked-lm")
    layer = _layer(config, family, hidden)
    words = {"word_embeddings": vocabulary * hidden}
    rows = {"position_embeddings": positions * hidden} if is_absolute else {}
    has_norm = config.flag("emb_layer_norm_before", default=False)
    embeddings = Part(
        name="embeddings",
        tables={**words, **rows},
        vectors={"layer_norm": 2 * hidden} if has_norm else {},
        kept=(kept.layer_norm("layer_norm", hidden),) if has_norm else (),
    )
    contacts = encoders.classifier("contact_head", layer.count * layer.attention.num_heads, 1)
    return Model(
        name=name,
        model_type=config.text("model_type", ""),
        task=task,
        parts=(
            embeddings,
            encoders.block(layer),
            encoders.norm_part("emb_layer_norm_after", hidden),
            contacts,
            *_head(config, family, task, hidden, vocabulary),
        ),
        vocab_size=vocabulary,
        hidden_size=hidden,
        max_position_embeddings=positions,
        has_learned_positions=is_absolute,
        config=config.values,
    )


def _layer(config: Config, family: _Family, hidden: int) -> encoders.Layer:
    heads = config.size("num_attention_heads", 12)
    dropped = config.probability("attention_probs_dropout_prob", family.dropout)
    return encoders.Layer(
        count=config.size("num_hidden_layers", 12),
        attention=encoders.bidirectional(
            heads,
            config.divided("hidden_size", hidden, "num_attention_heads", heads),
            dropped,
            is_upcast=False,
        ),
        hidden=hidden,
        inner=config.size("intermediate_size", 3072),
        activation=kept.SPELLED_OUT_GELU,
        names=NAMES,
        dropout=config.probability("hidden_dropout_prob", family.dropout),
    )


def _head(
    config: Config, family: _Family, task: str, hidden: int, vocabulary: int
) -> tuple[Part, ...]:
    dropout = config.probability("classifier_dropout", family.dropout)
    if task == "sequence-classification":
        return encoders.sequence_head(hidden, labels(config), drops_first=dropout > 0)
    if task == "token-classification":
        return (encoders.token_head(hidden, labels(config), dropout),)
    if task == "none":
        return (encoders.classifier("pooler", hidden, hidden),)
    is_tied = config.flag("tie_word_embeddings", default=True)
    return (
        encoders.masked_lm_head(
            hidden, hidden, vocabulary, kept.SPELLED_OUT_GELU, is_tied=is_tied, second_bias={}
        ),
    )
