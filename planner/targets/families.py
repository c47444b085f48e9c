"""Models that a script can divide over GPUs by hand: what transformers calls their parts."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from planner.domain.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Model types whose modules have the same names and the same order."""

    name: str
    trunk: str
    """Where the layers are, inside the model with its head."""
    layers: str
    embedding: str
    norm: str
    """The last one, before the head."""
    ties_by_default: bool
    heads: tuple[str, str]
    """Fields of config.json: attention heads, and those of keys and values."""


_GPT2 = Family(
    name="gpt2",
    trunk="transformer",
    layers="h",
    embedding="wte",
    norm="ln_f",
    ties_by_default=True,
    heads=("n_head", "n_head"),
)
_LLAMA = Family(
    name="llama",
    trunk="model",
    layers="layers",
    embedding="embed_tokens",
    norm="norm",
    ties_by_default=False,
    heads=("num_attention_heads", "num_key_value_heads"),
)

_FAMILIES: Mapping[str, Family] = MappingProxyType(
    {"gpt2": _GPT2, "llama": _LLAMA, "mistral": _LLAMA, "qwen2": _LLAMA, "qwen3": _LLAMA}
)
"""By `model_type`. Each has been compared with transformers' own forward pass."""


def family(config: Mapping[str, object]) -> Family | None:
    """Return how the model of a config.json can be divided; None where nobody has said."""
    return _FAMILIES.get(str(config.get("model_type")))


def is_tied(config: Mapping[str, object]) -> bool:
    """Return whether the head of a known family is its embedding."""
    known = family(config)
    default = known is not None and known.ties_by_default
    return bool(config.get("tie_word_embeddings", default))


def undividable(job: Job) -> str | None:
    """Return why the model cannot be divided over GPUs; None where it can."""
    config = job.model.config
    known = family(config)
    if known is None or job.model.task != "causal-lm":
        kind = config.get("model_type", "unknown")
        return f"it divides {_known_types()}, not models of type {str(kind)[:40]}"
    window = _window(config)
    if window and window < job.recipe.sequence_length:
        return f"it divides no model that attends to the last {window} tokens only"
    if known is _GPT2 and config.get("add_cross_attention"):
        return "it divides no model with cross-attention"
    return None


def heads(config: Mapping[str, object]) -> tuple[int, int]:
    """Return the attention heads of a model of a known family, and those of keys and values."""
    known = family(config)
    if known is None:
        return 1, 1
    queries, keys = known.heads
    count = _count(config, queries, 1)
    return count, _count(config, keys, count)


def _count(config: Mapping[str, object], name: str, default: int) -> int:
    value: Any = config.get(name)
    return value if isinstance(value, int) and value > 0 else default


def _window(config: Mapping[str, object]) -> int:
    """Return the tokens of a sliding window, 0 without one."""
    if config.get("use_sliding_window", config.get("model_type") == "mistral") is False:
        return 0
    return _count(config, "sliding_window", 0)


def _known_types() -> str:
    *first, last = _FAMILIES
    return f"{', '.join(first)} and {last}"
