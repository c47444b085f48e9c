"""Decoder-only models, read by structure: what a family does is a record, sizes come from the config.

A `DecoderFamily` says what the config.json leaves to the modelling code (norms, biases, ties, gates), and
the values that the code takes where the config is silent. `data/families` lists them; mixtures of experts add
their own MLP in `planner.models.architectures.experts`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from planner.core.frozen import frozen
from planner.domain.kept import Share
from planner.domain.model import Attention, Linear, Model, Part
from planner.models.architectures import kept
from planner.models.architectures.config import Config
from planner.models.architectures.decoder_family import (
    POST_NORM,
    DecoderFamily,
    dropout,
    flag,
    size,
)
from planner.models.architectures.decoder_layers import (
    EXPERT_OUTPUT,
    MLP_INNER,
    dense_mlp,
    grouped_attention,
)
from planner.models.architectures.family import family_of
from planner.models.architectures.fields import labels
from planner.models.architectures.head_classes import OF_DECODERS, task_of
from planner.models.architectures.latent import latent_attention
from planner.models.architectures.pieces import Piece, block_modules

Mixer: TypeAlias = Callable[[DecoderFamily, Config, int], tuple[Attention | None, Piece]]
"""Builds what mixes tokens, for a hidden size: the scores, if any, and the matrices around them."""

Mlp: TypeAlias = Callable[[DecoderFamily, Config, int], Piece]
"""Builds the MLP of a block, for a hidden size."""


_HEADS = {
    "causal-lm": "lm_head",
    "sequence-classification": "score",
    "token-classification": "score",
    "question-answering": "qa_outputs",
}
"""What transformers calls the last matrix."""
_BEGIN_AND_END = 2
"""Logits of a token where an answer is looked for, whatever the labels."""
_TAG_DROPOUT = 0.1
"""Before the classes of tokens, where the config is silent: GenericForTokenClassification of transformers 5.23."""


@frozen
class Stack:
    """Layers of one kind."""

    count: int
    mixer: Mixer
    mlp: Mlp
    name: str = "block"


def read(name: str, config: Config) -> Model:
    """Return the Model of a dense decoder-only config.json."""
    return read_as(family_of(DecoderFamily, config), name, config)


def read_as(family: DecoderFamily, name: str, config: Config) -> Model:
    """Return the Model of a dense decoder-only config.json of that family."""
    count = size(family, config, "layers")
    stack = Stack(count=count, mixer=attention_of(family), mlp=dense_mlp)
    return assemble(family, name, config, [stack])


def attention_of(family: DecoderFamily) -> Mixer:
    """Return the attention of a family: over latent vectors, or with groups of queries."""
    return latent_attention if family.has_latent_attention else grouped_attention


def assemble(family: DecoderFamily, name: str, config: Config, stacks: list[Stack]) -> Model:
    """Return the Model whose trunk is made of these stacks of layers."""
    hidden = size(family, config, "hidden")
    vocabulary = size(family, config, "vocabulary")
    blocks = [part for stack in stacks if stack.count for part in _blocks(family, config, stack)]
    task = task_of(config, OF_DECODERS, "causal-lm")
    return Model(
        name=name,
        model_type=config.text("model_type", ""),
        task=task,
        parts=(
            _embeddings(family, config, hidden, vocabulary),
            *blocks,
            _head(family, config, hidden, task),
        ),
        vocab_size=vocabulary,
        hidden_size=hidden,
        max_position_embeddings=size(family, config, "positions", 2048),
        has_learned_positions=family.positions_offset is not None,
        config=config.values,
    )


def _embeddings(family: DecoderFamily, config: Config, hidden: int, vocabulary: int) -> Part:
    width = config.size("word_embed_proj_dim", hidden)
    tables = {"word_embeddings": vocabulary * width}
    if family.positions_offset is not None:
        rows = size(family, config, "positions") + family.positions_offset
        tables["position_embeddings"] = rows * hidden
    norm, has_norm = family.norm, family.has_embedding_norm
    project = Linear(name="project_in", in_features=width, out_features=hidden)
    return Part(
        name="embeddings",
        linears=(project,) if width != hidden else (),
        tables=tables,
        split_tables=("word_embeddings",),
        vectors={"embedding_norm": norm.parameters_per_channel * hidden} if has_norm else {},
        kept=(
            *((norm.kept("embedding_norm", hidden),) if has_norm else ()),
            *kept.dropout("dropout_mask", hidden, dropout(family, config, 0)),
        ),
    )


def _head(family: DecoderFamily, config: Config, hidden: int, task: str) -> Part:
    """Build the head of words; or of few logits, for every token: classes of a sequence are its last one's."""
    width, norm = config.size("word_embed_proj_dim", hidden), family.norm
    is_of_words, is_tagged = task == "causal-lm", task == "token-classification"
    few = _BEGIN_AND_END if task == "question-answering" else labels(config)
    outputs = size(family, config, "vocabulary") if is_of_words else few
    is_tied = is_of_words and config.flag("tie_word_embeddings", default=family.is_tied)
    has_bias = flag(config, family.head_bias) if is_of_words else task != "sequence-classification"
    last = Linear(
        name=_HEADS[task],
        in_features=width,
        out_features=outputs,
        has_bias=has_bias,
        is_tied=is_tied,
        most_splits=outputs if is_of_words else 1,
    )
    dropped = config.probability("classifier_dropout", _TAG_DROPOUT) if is_tagged else 0.0
    project = Linear(name="project_out", in_features=hidden, out_features=width)
    # OPT's one post-norm member has no final norm.
    has_norm = family.has_final_norm and config.flag("do_layer_norm_before", default=True)
    return Part(
        name="head",
        linears=(project, last) if width != hidden else (last,),
        vectors={"norm": norm.parameters_per_channel * hidden} if has_norm else {},
        kept=(
            *((norm.kept("norm", hidden),) if has_norm else ()),
            *kept.dropout("head_dropout_mask", width, dropped),
            kept.operand(f"{last.name}_input", width, share=Share.INPUT, of=(last.name,)),
        ),
    )


def _blocks(family: DecoderFamily, config: Config, stack: Stack) -> list[Part]:
    """Return the kinds of blocks of a stack: with full attention, and with a sliding window."""
    hidden = size(family, config, "hidden")
    attention, outer = stack.mixer(family, config, hidden)
    mlp_piece = stack.mlp(family, config, hidden)
    norm = family.norm
    norms = tuple(norm.kept(name, hidden) for name in family.norms)
    block = Part(
        name=stack.name,
        is_block=True,
        count=stack.count,
        linears=(*outer.linears, *mlp_piece.linears),
        vectors=dict.fromkeys(family.norms, norm.parameters_per_channel * hidden)
        | dict(outer.vectors)
        | dict(mlp_piece.vectors),
        attention=attention,
        scan_flops_per_token=outer.scan_flops_per_token,
        scan=outer.scan,
        kept=(*norms, *outer.kept, *mlp_piece.kept),
        leaves_last_unread=_ends_with(MLP_INNER, family, mlp_piece),
        leaves_last_to_router=_ends_with(EXPERT_OUTPUT, family, mlp_piece),
        modules=block_modules(norms, outer, mlp_piece),
    )
    sliding, window = _sliding_layers(
        config, stack.count, family.sliding_period, family.default_window
    )
    if attention is None or not sliding:
        return [block]
    windowed = replace(
        block,
        name=f"sliding_{stack.name}",
        count=sliding,
        attention=replace(attention, window=window),
    )
    return [replace(block, count=stack.count - sliding), windowed][sliding == stack.count :]


def _ends_with(name: str, family: DecoderFamily, mlp: Piece) -> bool:
    is_last = bool(mlp.kept) and mlp.kept[-1].name == name
    return is_last and POST_NORM not in family.norms


def _sliding_layers(
    config: Config, count: int, period: int, default_window: int
) -> tuple[int, int]:
    """Return how many of so many layers see only a window of the last keys, and its size; 0 and 0 without one.

    Args:
        config: the model's; `layer_types` or `sliding_window_pattern` say which layers.
        count: layers in all.
        period: every n-th layer attends to everything where the config does not say; 0 none.
        default_window: of the family where the config does not say.
    """
    window = config.values.get("sliding_window", default_window)
    if window in (None, 0) or not config.flag("use_sliding_window", default=True):
        return 0, 0
    window = config.size("sliding_window", default_window)
    kinds = config.values.get("layer_types")
    if isinstance(kinds, list) and kinds:
        share = sum(kind == "sliding_attention" for kind in kinds) / len(kinds)
        return round(share * count), window
    period = config.size("sliding_window_pattern", period or 1)
    return count - (count // period if period > 1 else 0), window
