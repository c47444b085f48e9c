"""Models that a script can divide over GPUs by hand: what transformers calls their parts."""

from collections.abc import Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any

from planner.core.frozen import frozen
from planner.domain.job import Job


@frozen
class Family:
    """Model types whose modules have the same names and the same order.

    Source: the models' own forward passes in transformers 5.23.
    """

    name: str
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
    logits: tuple[str, float | None] = ("", None)
    """The config's field that scales or caps the logits, and its value without one."""
    turns_by_kind: bool = False
    """Positions are turned by other angles in layers with a window."""
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Linears of a layer that hold several side by side, and what those are."""
    has_experts: bool = False
    keeps_attention_whole: bool = False
    """No tensor parallelism: the model's own plan for it leaves some of the attention undivided."""
    is_plain: bool = False
    """Nothing but embeddings, like layers, a norm and a head."""


_SHOWN_TYPES = 6
"""Of those that a script divides, in the reason why it does not divide another."""

_LLAMA = Family(name="llama", is_plain=True)
_GPT2 = Family(
    name="gpt2",
    trunk="transformer",
    layers="h",
    embedding="wte",
    norm="ln_f",
    attention="attn",
    ties_by_default=True,
    heads=("n_head", "n_head"),
    default_heads=(12, 12),
    is_plain=True,
)
_QWEN2 = replace(_LLAMA, default_window=4096, window_flag="use_sliding_window")
_GEMMA = Family(name="llama", ties_by_default=True, default_heads=(16, 16))
_GEMMA2 = replace(
    _GEMMA,
    default_heads=(8, 4),
    default_window=4096,
    logits=("final_logit_softcapping", 30.0),
)
_EXPERTS = Family(name="llama", has_experts=True)
_LATENT = replace(_EXPERTS, keeps_attention_whole=True)

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "gpt2": _GPT2,
        "llama": _LLAMA,
        "mistral": replace(_LLAMA, default_heads=(32, 8), default_window=4096),
        "qwen2": _QWEN2,
        "qwen3": _QWEN2,
        "arcee": Family(name="llama"),
        "cohere": Family(
            name="llama",
            ties_by_default=True,
            default_heads=(64, 64),
            logits=("logit_scale", 0.0625),
        ),
        "cohere2": Family(
            name="llama",
            ties_by_default=True,
            default_heads=(64, 64),
            default_window=4096,
            logits=("logit_scale", 0.0625),
        ),
        "exaone4": Family(name="llama", default_window=4096),
        "gemma": _GEMMA,
        "gemma2": _GEMMA2,
        "gemma3_text": replace(
            _GEMMA2, logits=("final_logit_softcapping", None), turns_by_kind=True
        ),
        "gpt_neox": Family(
            name="llama",
            trunk="gpt_neox",
            embedding="embed_in",
            norm="final_layer_norm",
            attention="attention",
            heads=("num_attention_heads", "num_attention_heads"),
            default_heads=(64, 64),
            embedding_dropout="hidden_dropout",
        ),
        "granite": Family(
            name="llama",
            embedding_factor="embedding_multiplier",
            logits=("logits_scaling", 1.0),
        ),
        "helium": Family(name="llama", default_heads=(20, 20)),
        "nemotron": Family(name="llama", default_heads=(48, 48)),
        "olmo": Family(name="llama"),
        "olmo2": Family(name="llama"),
        "olmo3": Family(name="llama", default_window=4096, turns_by_kind=True),
        "phi": Family(name="llama", norm="final_layernorm", embedding_dropout="embd_pdrop"),
        "phi3": Family(
            name="llama",
            fused=MappingProxyType(
                {
                    "self_attn.qkv_proj": ("query", "key", "value"),
                    "mlp.gate_up_proj": ("gate", "up"),
                }
            ),
        ),
        "seed_oss": Family(name="llama", default_heads=(80, 8)),
        "smollm3": Family(
            name="llama",
            ties_by_default=True,
            default_heads=(16, 4),
            window_flag="use_sliding_window",
        ),
        "starcoder2": Family(
            name="llama",
            ties_by_default=True,
            default_heads=(24, 2),
            embedding_dropout="embedding_dropout",
        ),
        "deepseek_v2": replace(_LATENT, default_heads=(32, 32)),
        "deepseek_v3": replace(_LATENT, default_heads=(128, 128)),
        "glm4_moe": replace(_EXPERTS, default_heads=(96, 8)),
        "granitemoe": replace(
            _LATENT,
            embedding_factor="embedding_multiplier",
            logits=("logits_scaling", 1.0),
        ),
        "minimax_m2": replace(_EXPERTS, default_heads=(48, 8)),
        "mixtral": replace(_EXPERTS, default_heads=(32, 8)),
        "olmoe": replace(_EXPERTS, default_heads=(16, 16)),
        "qwen2_moe": replace(
            _EXPERTS,
            default_heads=(16, 16),
            default_window=4096,
            window_flag="use_sliding_window",
        ),
        "qwen3_moe": replace(
            _EXPERTS,
            default_heads=(32, 4),
            default_window=4096,
            window_flag="use_sliding_window",
        ),
    }
)
"""By `model_type`. Each has been compared with transformers' own forward pass."""


def family(config: Mapping[str, object]) -> Family | None:
    """Return how the model of a config.json can be divided; None where nobody has said."""
    return FAMILIES.get(str(config.get("model_type")))


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
        return f"it divides {_types(FAMILIES)}, not models of type {str(kind)[:40]}"
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
        plain = [kind for kind, each in FAMILIES.items() if each.is_plain]
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
    name, default = known.logits if known else ("", None)
    return name if name and config.get(name, default) is not None else ""


def _count(config: Mapping[str, object], name: str, default: int) -> int:
    value: Any = config.get(name, default)
    return value if isinstance(value, int) and value > 0 else 0


def _types(kinds: Mapping[str, Family] | list[str]) -> str:
    """Return some types of model, of many the first; docs/targets.md has them all."""
    named, more = list(kinds)[:_SHOWN_TYPES], len(kinds) - _SHOWN_TYPES
    last = f"{more} more types" if more > 0 else named.pop()
    return f"{', '.join(named)} and {last}"
