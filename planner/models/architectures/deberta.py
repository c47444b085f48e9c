"""DeBERTa v2 and v3: bert's layers, whose scores also compare contents with relative positions.

Its scores are always materialised: transformers has no fused attention for it.
"""

from dataclasses import replace

from planner.domain.kept import Kept
from planner.domain.model import Attention, Linear, Model, Part
from planner.models.architectures import bert, encoders, kept
from planner.models.architectures.config import Config
from planner.models.architectures.fields import count, labels, texts
from planner.models.architectures.head_classes import MASKED_LM, OF_TEXTS, task_of

_TASKS = {**MASKED_LM, **OF_TEXTS}


def read(name: str, config: Config) -> Model:
    """Return the Model of a deberta-v2 config.json, with the head that `architectures` names.

    `...ForMaskedLM` has the legacy head of transformers; where no class is named it is read as `DebertaV2Model`, for the
    checkpoints name none.

    Raises:
        UnsupportedError: the class has another head.
    """
    hidden = config.size("hidden_size", 1536)
    vocabulary = config.size("vocab_size", 128100)
    positions = config.size("max_position_embeddings", 512)
    task = task_of(config, _TASKS, "none")
    return Model(
        name=name,
        model_type="deberta-v2",
        task=task,
        parts=(
            _embeddings(config, hidden, vocabulary, positions),
            *_relative_positions(config, hidden, positions),
            _block(config, hidden),
            *_convolution(config, hidden),
            *_head(config, task, hidden, vocabulary),
        ),
        vocab_size=vocabulary,
        hidden_size=hidden,
        max_position_embeddings=positions,
        has_learned_positions=config.flag("position_biased_input", default=True),
        config=config.values,
    )


def _width(config: Config, hidden: int) -> int:
    return config.size("embedding_size", hidden)


def _embeddings(config: Config, hidden: int, vocabulary: int, positions: int) -> Part:
    width = _width(config, hidden)
    tables = {
        "word_embeddings": vocabulary * width,
        "token_type_embeddings": count(config, "type_vocab_size", 0) * width,
    }
    if config.flag("position_biased_input", default=True):
        tables["position_embeddings"] = positions * width
    projection = Linear(name="embed_proj", in_features=width, out_features=hidden)
    dropout = config.probability("hidden_dropout_prob", 0.1)
    return Part(
        name="embeddings",
        linears=(projection,) if width != hidden else (),
        tables=tables,
        vectors={"LayerNorm": 2 * hidden},
        kept=(
            *((kept.operand("embed_proj_input", width),) if width != hidden else ()),
            kept.layer_norm("LayerNorm", hidden),
            *kept.dropout("dropout_mask", hidden, dropout),
        ),
    )


def _relative_positions(config: Config, hidden: int, positions: int) -> tuple[Part, ...]:
    """Build the table of relative positions, which all layers project with their own matrices."""
    vectors = {}
    if "layer_norm" in config.text("norm_rel_ebd", "none"):
        vectors["LayerNorm"] = 2 * hidden
    tables = {}
    if config.flag("relative_attention", default=False):
        tables["rel_embeddings"] = 2 * _span(config, positions) * hidden
    if not tables and not vectors:
        return ()
    return (Part(name="relative_positions", tables=tables, vectors=vectors),)


def _span(config: Config, positions: int) -> int:
    buckets = count(config, "position_buckets", -1)
    furthest = count(config, "max_relative_positions", -1)
    return buckets or furthest or positions


def _block(config: Config, hidden: int) -> Part:
    heads = config.size("num_attention_heads", 24)
    head_dim = config.divided("hidden_size", hidden, "num_attention_heads", heads)
    head_dim = config.size("attention_head_size", head_dim)
    layer = encoders.Layer(
        count=config.size("num_hidden_layers", 24),
        attention=Attention(
            num_heads=heads,
            num_key_value_heads=heads,
            head_dim=head_dim,
            is_causal=False,
            eager_bytes_per_score=_score_bytes(config, heads),
            has_fused_kernel=False,
        ),
        hidden=hidden,
        inner=config.size("intermediate_size", 6144),
        activation=config.text("hidden_act", "gelu"),
        names=bert.NAMES,
        dropout=config.probability("hidden_dropout_prob", 0.1),
    )
    plain = encoders.block(layer)
    return replace(
        plain,
        linears=(*plain.linears, *_position_projections(config, hidden, heads * head_dim)),
        kept=(*plain.kept, *_comparisons_kept(config, heads, heads * head_dim)),
    )


def _comparisons_kept(config: Config, heads: int, size: int) -> tuple[Kept, ...]:
    """Build what the comparisons with positions keep beside the scores.

    Each keeps its products with the whole table, and the table projected, one copy per sequence:
    spread over max_position_embeddings tokens. The key is kept as it is and scaled.
    """
    positions = config.size("max_position_embeddings", 512)
    rows = 2 * _span(config, positions)
    kinds = _kinds(config)
    return (
        *(kept.operand(f"{kind}_products", heads * rows) for kind in kinds),
        *(kept.operand(f"{kind}_positions", size * rows / positions) for kind in kinds),
        *((kept.operand("scaled_key", size),) if "p2c" in kinds else ()),
    )


def _kinds(config: Config) -> tuple[str, ...]:
    """Return which comparisons with positions the scores add: c2p, p2c."""
    if not config.flag("relative_attention", default=False):
        return ()
    named = texts(config, "pos_att_type")
    return tuple(kind for kind in ("c2p", "p2c") if kind in named)


def _position_projections(config: Config, hidden: int, size: int) -> tuple[Linear, ...]:
    """Build the matrices of the position table, where they are not the query's and the key's."""
    if config.flag("share_att_key", default=False):
        return ()
    names = {"c2p": "pos_key_proj", "p2c": "pos_query_proj"}
    return tuple(
        Linear(name=name, in_features=hidden, out_features=size, has_bias=True)
        for kind, name in names.items()
        if kind in _kinds(config)
    )


def _score_bytes(config: Config, heads: int) -> tuple[float, float, float]:
    """Bytes per score: softmax and dropout; a mask and 8-byte indices that all heads share.

    The indices serve the whole batch, too, but count here as if it were one sequence.
    """
    dropout = config.probability("attention_probs_dropout_prob", 0.1)
    shared = (1 + 8 * len(_kinds(config))) / heads
    fp32, autocast, half, _ = kept.scores(dropout, is_upcast=False)["eager_bytes_per_score"]
    return fp32 + shared, autocast + shared, half + shared


def _convolution(config: Config, hidden: int) -> tuple[Part, ...]:
    """Build the convolution beside the first layer that the xlarge checkpoints have."""
    kernel = count(config, "conv_kernel_size", 0)
    if not kernel:
        return ()
    groups = config.size("conv_groups", 1)
    channels = config.divided("hidden_size", hidden, "conv_groups", groups)
    convolution = Linear(
        name="conv", in_features=channels * kernel, out_features=hidden, has_bias=True
    )
    return (
        Part(
            name="convolution",
            linears=(convolution,),
            vectors={"LayerNorm": 2 * hidden},
            kept=(
                kept.operand("conv_input", hidden),
                *kept.dropout(
                    "dropout_mask", hidden, config.probability("hidden_dropout_prob", 0.1)
                ),
                kept.operand("conv_output", hidden),
                kept.layer_norm("LayerNorm", hidden),
            ),
        ),
    )


def _head(config: Config, task: str, hidden: int, vocabulary: int) -> tuple[Part, ...]:
    if task == "none":
        return ()
    if task in {"token-classification", "question-answering"}:
        is_tagged = task == "token-classification"
        dropout = config.probability("hidden_dropout_prob", 0.1) if is_tagged else 0.0
        return (encoders.token_head(hidden, labels(config), dropout),)
    if task in {"sequence-classification", "multiple-choice"}:
        dropout = config.probability("pooler_dropout")
        logits = labels(config) if task == "sequence-classification" else 1
        return encoders.sequence_head(hidden, logits, drops_first=dropout > 0)
    return (_masked_lm_head(config, hidden, vocabulary),)


def _masked_lm_head(config: Config, hidden: int, vocabulary: int) -> Part:
    is_tied = config.flag("tie_word_embeddings", default=True)
    function = config.text("hidden_act", "gelu")
    width = _width(config, hidden)
    if not config.flag("legacy", default=True):
        return encoders.masked_lm_head(
            hidden, hidden, vocabulary, function, is_tied=True, second_bias={}
        )
    return encoders.masked_lm_head(
        hidden,
        width,
        vocabulary,
        function,
        is_tied=is_tied,
        second_bias={} if is_tied else {"bias": vocabulary},
    )
