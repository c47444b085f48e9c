"""config.json -> Model through transformers on PyTorch's meta device, for types without a reader.

Parameter counts are exact: the model is built, without memory for its weights. What it keeps for
backward is an estimate, from the module tree alone. Only classes that transformers itself ships
are used; code that comes with a model is never imported.
"""

import re
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import get_ident
from typing import Any

from planner.core.errors import InvalidInputError, PlannerError, UnsupportedError
from planner.domain.model import Attention, Model
from planner.models.architectures import LARGEST_MODEL, kept
from planner.models.architectures.config import NAMELESS, Config
from planner.models.architectures.head_classes import OF_TEXTS
from planner.models.meta_parts import Facts, Module, read_parts

LONGEST_BUILD_SECONDS = 30.0
LARGEST_NUMBER = 10**12
MOST_REPETITIONS = 10_000
"""Layers, experts or heads: what classes loop over in Python."""
MOST_POSITIONS = 2**24
MOST_REAL_NUMBERS = 10**7
"""Elements that a class may allocate in spite of the meta device."""
UNBOUNDED_POSITIONS = 2**20
_RESERVED_ROWS = 8
_PLAIN = frozenset({"attn_config", "ffn_config"})
"""Configs inside a config that make no other model of it: not an encoder of images, say."""
_EXPERTS_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k")
_REPEATED = re.compile(r"(layer|block|expert|group|head)s?$")
_IGNORED = frozenset(
    (
        *("attn_implementation", "auto_map", "backbone", "backbone_config", "backbone_kwargs"),
        *("dtype", "experts_implementation", "id2label", "label2id", "num_labels"),
        *("quantization_config", "torch_dtype", "trust_remote_code", "use_kernels"),
        *("use_pretrained_backbone", "use_timm_backbone"),
    )
)
"""Fields that name code or weights to load, or that change no size."""


def read_with_transformers(name: str, config: Mapping[str, Any]) -> Model:
    """Return the Model of a config.json whose model_type transformers knows.

    The parameters are exact, tied ones counted once; the kept bytes are an estimate.

    Raises:
        UnsupportedError: torch or transformers is missing, or transformers does not know the
            type, or it has no blocks that repeat.
        InvalidInputError: transformers cannot build a model of these sizes.
    """
    try:
        import torch  # noqa: F401 - an optional extra, and slow to import
        import transformers  # noqa: F401 - the same
    except ImportError:
        raise UnsupportedError(
            f"model_type {_model_type(config)!r} is not known yet",
            hint="transformers may know it: pip install 'trainplan[torch]'",
            field="model",
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            built, task = _build(config)
            return _describe(name, config, built, task)
    except PlannerError:
        raise
    except Exception as error:  # noqa: BLE001 - transformers checks a config by failing anywhere
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise InvalidInputError(
            f"transformers cannot build a model from config.json of {name[:80]!r}: {reason}",
            hint="is one of its sizes wrong, or missing?",
            field="model",
        ) from None


def _model_type(config: Mapping[str, Any]) -> str:
    return str(config.get("model_type"))[:60]


def _build(config: Mapping[str, Any]) -> tuple[Module, str]:
    import torch

    chosen = _config_class(config).from_dict(_cleaned(config))
    door, task = _door(chosen, config)
    with _limited(), torch.device("meta"):
        built = door.from_config(chosen, attn_implementation="eager", trust_remote_code=False)
    return built, task


def _config_class(config: Mapping[str, Any]) -> Any:
    from transformers import CONFIG_MAPPING

    model_type = config.get("model_type")
    is_known = isinstance(model_type, str) and model_type in CONFIG_MAPPING
    config_class = CONFIG_MAPPING[str(model_type)] if is_known else None
    if config_class is None or not config_class.__module__.startswith("transformers."):
        own = (
            " ships its own code, which the planner never runs, and" if "auto_map" in config else ""
        )
        raise UnsupportedError(
            f"model_type {_model_type(config)!r}{own} is known neither here nor to transformers",
            hint="plan for a model of a known type with the same sizes, or update transformers",
            field="model",
        )
    return config_class


def _cleaned(value: Any, key: str = "") -> Any:
    """Return the config without what names code, and without numbers that would take for ever."""
    if isinstance(value, Mapping):
        return {
            name: _cleaned(child, name)
            for name, child in value.items()
            if not name.startswith("_") and name not in _IGNORED
        }
    if isinstance(value, list):
        return [_cleaned(child) for child in value]
    largest = MOST_POSITIONS if "position" in key else LARGEST_NUMBER
    largest = MOST_REPETITIONS if _REPEATED.search(key) else largest
    if isinstance(value, int) and abs(value) > largest:
        raise InvalidInputError(
            f"config.json: {key[:60]} is larger than {largest:,}",
            hint="is it too large by accident?",
            field="model",
        )
    return value


def _door(chosen: Any, config: Mapping[str, Any]) -> tuple[Any, str]:
    import transformers
    from transformers.models.auto import modeling_auto

    heads = {
        "causal-lm": (
            transformers.AutoModelForCausalLM,
            modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING,
        ),
        "masked-lm": (
            transformers.AutoModelForMaskedLM,
            modeling_auto.MODEL_FOR_MASKED_LM_MAPPING,
        ),
    }
    tasks = [task for task, (_, mapping) in heads.items() if type(chosen) in mapping]
    _check_head(config)
    if not chosen.sub_configs.keys() <= _PLAIN:
        raise _no_language_model(config)
    bare = {"none": (transformers.AutoModel, modeling_auto.MODEL_MAPPING)} if tasks else {}
    for task, (door, mapping) in (heads | bare).items():
        if type(chosen) in mapping and config.get("architectures") == [_class(mapping, chosen)]:
            return door, task
    if not tasks or getattr(chosen, "is_encoder_decoder", False):
        raise _no_language_model(config)
    task = tasks[0] if getattr(chosen, "is_decoder", False) else tasks[-1]
    return heads[task][0], task


def _check_head(config: Mapping[str, Any]) -> None:
    """Refuse a class with few logits: built here it would be a language model.

    Raises:
        UnsupportedError: names it.
    """
    name = Config(NAMELESS, config).head_class()
    if name.endswith(tuple(OF_TEXTS)):
        raise UnsupportedError(
            f"the head of {name[:60]} is not known for model_type {_model_type(config)!r}",
            hint="through transformers, only causal and masked language models can be planned",
            field="model",
        )


def _class(mapping: Any, chosen: Any) -> str:
    names = mapping[type(chosen)]
    return str((names[0] if isinstance(names, tuple) else names).__name__)


def _no_language_model(config: Mapping[str, Any]) -> UnsupportedError:
    return UnsupportedError(
        f"model_type {_model_type(config)!r} is not known yet, and is no plain language model",
        hint="through transformers, only causal and masked language models can be planned",
        field="model",
    )


@contextmanager
def _limited() -> Iterator[None]:
    """Stop a model under construction that grows without end, or takes real memory."""
    from torch.nn.modules import module

    thread, until = get_ident(), time.monotonic() + LONGEST_BUILD_SECONDS
    total = real = 0

    def check(_: Module, name: str, child: Any) -> None:
        nonlocal total, real
        if get_ident() != thread:
            return
        if hasattr(child, "numel"):
            total += child.numel()
            real += 0 if child.is_meta else child.numel()
            if real > MOST_REAL_NUMBERS:
                raise UnsupportedError(
                    f"transformers takes memory for {name!r} while it builds this model",
                    hint="plan for a model of a known type with the same sizes",
                    field="model",
                )
        if total > LARGEST_MODEL or time.monotonic() > until:
            raise InvalidInputError(
                "config.json describes a model that is too large to build",
                hint="is one of its sizes too large?",
                field="model",
            )

    hooks = (
        module.register_module_parameter_registration_hook(check),
        module.register_module_module_registration_hook(check),
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _describe(name: str, config: Mapping[str, Any], built: Module, task: str) -> Model:
    sizes = built.config
    hidden, vocabulary = _number(sizes, "hidden_size"), _number(sizes, "vocab_size")
    if not hidden or not vocabulary:
        raise _no_language_model(config)
    experts = _number(
        sizes, "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"
    )
    facts = Facts(
        hidden_size=hidden,
        num_experts=experts,
        experts_per_token=_number(sizes, *_EXPERTS_PER_TOKEN) or experts,
        activation=_text(sizes, "hidden_act", "activation_function", "hidden_activation"),
        attention=_attention(sizes, hidden, is_causal=task == "causal-lm"),
    )
    positions = _number(sizes, "max_position_embeddings", "n_positions", "max_seq_len")
    return Model(
        name=name,
        model_type=_model_type(config),
        task=task,
        parts=read_parts(built, facts, _number(sizes, "num_hidden_layers")),
        vocab_size=vocabulary,
        hidden_size=hidden,
        max_position_embeddings=positions or UNBOUNDED_POSITIONS,
        has_learned_positions=_has_table(built, positions),
        config=config,
    )


def _has_table(built: Module, positions: int) -> bool:
    """Return whether a table has a row for each position; some reserve a few rows more."""
    from torch.nn import Embedding

    words = built.get_input_embeddings()
    tables = [m for m in built.modules() if isinstance(m, Embedding) and m is not words]
    return any(0 <= table.num_embeddings - positions <= _RESERVED_ROWS for table in tables)


def _number(config: Any, *names: str) -> int:
    values = (_field(config, name) for name in names)
    return next((v for v in values if type(v) is int and v > 0), 0)


def _text(config: Any, *names: str) -> str:
    values = (_field(config, name) for name in names)
    return next((v for v in values if isinstance(v, str)), "")


def _field(config: Any, name: str) -> object:
    """Return a field; None where it is missing, or differs from layer to layer."""
    with suppress(Exception):
        return getattr(config, name, None)
    return None


def _attention(config: Any, hidden: int, *, is_causal: bool) -> Attention | None:
    heads = _number(config, "num_attention_heads", "n_heads", "n_head")
    if not heads:
        return None
    names = ("attention_dropout", "attention_probs_dropout_prob", "attn_pdrop")
    dropouts = (_field(config, name) for name in names)
    return Attention(
        num_heads=heads,
        num_key_value_heads=_number(config, "num_key_value_heads", "num_kv_heads") or heads,
        head_dim=_number(config, "head_dim") or max(1, hidden // heads),
        is_causal=is_causal,
        **kept.scores(next((p for p in dropouts if isinstance(p, float)), 0.0), is_upcast=True),
    )
