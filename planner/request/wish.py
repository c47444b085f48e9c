"""A wish as people type it, into fields of the wire's strategy: tp=16, dp=2x4, zero=1 or hsdp."""

import re

from planner.core.errors import InvalidInputError, did_you_mean
from planner.domain.dimensions import DIMENSIONS
from planner.domain.strategy import STAGES
from planner.request.family import family_fields
from planner.request.sections import StrategyRequest

_SHORT_NAMES = {
    **{dimension.short_name: dimension.field for dimension in DIMENSIONS},
    "dp": "data_parallel_size",
    "sp": "sequence_parallel",
    "zero": "zero_stage",
    "schedule": "pipeline_schedule",
    "virtual": "virtual_pipeline_size",
    "replicate": "data_parallel_replicate_size",
    "shard": "data_parallel_shard_size",
    "mbs": "micro_batch_size",
    "accumulation": "gradient_accumulation_steps",
}
"""What the fields of a strategy may be called in short."""
_EXAMPLES = {
    "zero_stage": "1",
    "sequence_parallel": "true",
    "pipeline_schedule": "1f1b",
    "pipeline_layout": "2+3+3+2",
    "recompute": "full",
    "recompute_modules": "moe_act+layernorm",
    "offload": "optimizer",
    "family": "zero-1",
}
"""Values of the fields that hold no size."""
_NUMBER = re.compile(r"[0-9]{1,9}")
_HYBRID = re.compile(r"([0-9]{1,9})x([0-9]{1,9})")
_LONGEST = 60


def read_wish(text: str) -> dict[str, object]:
    """Return the fields that `tp=16,zero=1`, `tensor_parallel_size=16`, `dp=2x4` or `hsdp` name.

    Raises:
        InvalidInputError: a name or a value cannot be read.
    """
    wish: dict[str, object] = {}
    for part in text.split(","):
        fields = _pair(part) if "=" in part else _family(part.strip())
        if any(wish.get(name, value) != value for name, value in fields.items()):
            raise InvalidInputError(
                f"{text[:_LONGEST]!r} gives one field two values",
                hint=f"leave {part.strip()[:_LONGEST]} out, or what it contradicts",
                field="strategy",
            )
        wish |= fields
    return wish


def _family(name: str) -> dict[str, object]:
    family_fields(name)
    return {"family": name}


def _pair(pair: str) -> dict[str, object]:
    name, _, value = (part.strip() for part in pair.partition("="))
    field = _SHORT_NAMES.get(name.lower(), name.lower().replace("-", "_"))
    if field in StrategyRequest.model_fields and not value:
        raise InvalidInputError(
            f"{pair.strip()[:_LONGEST]!r} has no value",
            hint=f"such as {name}={_EXAMPLES.get(field, '4')}",
            field="strategy",
        )
    if field not in StrategyRequest.model_fields:
        known = (*_SHORT_NAMES, *StrategyRequest.model_fields)
        raise InvalidInputError(
            f"cannot read {pair.strip()[:_LONGEST]!r} as NAME=VALUE of a strategy",
            hint=did_you_mean(name, known) or f"such as tp=4; names: {', '.join(_SHORT_NAMES)}",
            field="strategy",
        )
    hybrid = _HYBRID.fullmatch(value)
    if field == "data_parallel_size" and hybrid:
        sizes = ("data_parallel_replicate_size", "data_parallel_shard_size")
        return dict(zip(sizes, map(int, hybrid.groups()), strict=True))
    return {field: _value(field, value)}


def _value(field: str, text: str) -> object:
    if _NUMBER.fullmatch(text):
        return bool(int(text)) if field == "sequence_parallel" else int(text)
    if field == "recompute_modules":
        return text.split("+")
    if field == "zero_stage" and text.lower() in STAGES:
        return STAGES[text.lower()]
    return {"true": True, "false": False}.get(text.lower(), text)
