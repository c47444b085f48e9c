"""Models that a script can divide over GPUs by hand: what transformers calls their parts."""

from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import Any

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen
from planner.domain.job import Job


@frozen
class Family:
    """Model types whose modules have the same names and the same order."""

    name: str = "llama"
    """Whose parts its layers are divided as."""
    trunk: str = "model"
    """Where the layers are, inside the model with its head."""
    layers: str = "layers"
    embedding: str = "embed_tokens"
    norm: str = "norm"
    """The last one, before the head."""
    attention: str = "self_attn"
    """Inside a layer."""
    ties_by_default: bool = False
    heads: tuple[str, str] = ("num_attention_heads", "num_key_value_heads")
    """Fields of config.json: attention heads, and those of keys and values."""
    default_heads: tuple[int, int] = (32, 32)
    """Of a config.json without them."""
    default_window: int = 0
    """Tokens that some layers attend to where config.json does not say; 0 all."""
    window_flag: str = ""
    """The field without which the window of config.json is not used; "" where it always is."""
    embedding_dropout: str = ""
    """The config's field for dropout after the embeddings."""
    embedding_factor: str = ""
    """The config's field that embeddings are multiplied by after their module."""
    logits: str = ""
    """The config's field that scales or caps the logits."""
    default_logits: float | None = None
    """Of a config.json without it."""
    turns_by_kind: bool = False
    """Positions are turned by other angles in layers with a window."""
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Linears of a layer that hold several side by side, and what those are."""
    norms_heads: bool = False
    """Its attention may have norms of queries and keys."""
    has_experts: bool = False
    keeps_attention_whole: bool = False
    """No tensor parallelism: the model's own plan for it leaves some of the attention undivided."""
    is_plain: bool = False
    """Nothing but embeddings, like layers, a norm and a head."""


_SHOWN_TYPES = 6
"""Of those that a script divides, in the reason why it does not divide another."""


@frozen
class _Families:
    source: str
    families: Mapping[str, Family]


@cache
def families() -> Mapping[str, Family]:
    """Return the families by `model_type`."""
    return build(_Families, read("scripts", "families"), "scripts/families").families


def family(config: Mapping[str, object]) -> Family | None:
    """Return how the model of a config.json can be divided; None where nobody has said."""
    return families().get(str(config.get("model_type")))


def has_fused_matrices(config: Mapping[str, object]) -> bool:
    """Return whether tensor parallelism divides linears of a known family that hold several side by side."""
    known = family(config)
    return known is not None and (known.name == "gpt2" or bool(known.fused))


def is_tied(config: Mapping[str, object]) -> bool:
    """Return whether the head of a known family is its embedding."""
    known = family(config)
    default = known is not None and known.ties_by_default
    return bool(config.get("tie_word_embeddings", default))


def undividable(job: Job) -> str | None:
    """Return why nothing divides the model over GPUs; None where a script of PyTorch alone does."""
    config = job.model.config
    known = family(config)
    if known is None or job.model.task != "causal-lm":
        kind = config.get("model_type", "unknown")
        return f"it divides {_types(families())}, not models of type {str(kind)[:40]}"
    if known.name == "gpt2" and config.get("add_cross_attention"):
        return "it divides no model with cross-attention"
    if config.get("use_bidirectional_attention"):
        return "it divides no model whose tokens attend to those after them"
    return None


def unusual(job: Job) -> str | None:
    """Return why only the script of PyTorch alone divides a model; None where the others do too."""
    obstacle, config = undividable(job), job.model.config
    if obstacle is not None:
        return obstacle
    known = family(config)
    if known is None or not known.is_plain:
        plain = [kind for kind, each in families().items() if each.is_plain]
        return f"it divides {_types(plain)}, not models of type {str(config['model_type'])[:40]}"
    return windowed(job)


def windowed(job: Job) -> str | None:
    """Return why a sequence of the model is not divided; None where every layer sees all of it."""
    tokens = window(job.model.config)
    if tokens and tokens < job.recipe.sequence_length:
        return f"it divides no model that attends to the last {tokens} tokens only"
    return None


def heads(config: Mapping[str, object]) -> tuple[int, int]:
    """Return the attention heads of a model of a known family, and those of keys and values."""
    known = family(config)
    if known is None:
        return 1, 1
    (queries, keys), (default, fewer) = known.heads, known.default_heads
    count = _count(config, queries, default) or default
    return count, _count(config, keys, count if fewer == default else fewer) or count


def window(config: Mapping[str, object]) -> int:
    """Return the tokens that some layers of a known family attend to, 0 where all see every one."""
    known = family(config)
    if known is None or (known.window_flag and not config.get(known.window_flag)):
        return 0
    return _count(config, "sliding_window", known.default_window)


def logits_field(config: Mapping[str, object]) -> str:
    """Return the config's field that scales or caps the logits, "" where none does."""
    known = family(config)
    if known is None or config.get(known.logits, known.default_logits) is None:
        return ""
    return known.logits


def _count(config: Mapping[str, object], name: str, default: int) -> int:
    value: Any = config.get(name, default)
    return value if isinstance(value, int) and value > 0 else 0


def _types(kinds: Mapping[str, Family] | list[str]) -> str:
    """Return some types of model, of many the first; docs/targets.md has them all."""
    named, more = list(kinds)[:_SHOWN_TYPES], len(kinds) - _SHOWN_TYPES
    last = f"{more} more types" if more > 0 else named.pop()
    return f"{', '.join(named)} and {last}"
