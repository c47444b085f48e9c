"""Heads that a user may ask for in place of the one that a config.json names."""

from collections.abc import Mapping
from typing import Any

from planner.catalog.records import model_types, read
from planner.core.errors import UnsupportedError

_ENDS: Mapping[str, str] = {
    "sequence-classification": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
}
_DECODERS = ("decoder", "experts")
"""Readers of decoders."""


def reads_last_token(model_type: object) -> bool:
    """Return whether models of a type are decoders that can classify a sequence, which they do by its last token."""
    return has_head(model_type, "sequence-classification") and _is_decoder(str(model_type))


def classifying(
    config: Mapping[str, Any], task: str = "sequence-classification"
) -> Mapping[str, Any]:
    """Return the config of the same model with a head that classifies sequences, or tokens.

    Raises:
        UnsupportedError: the model is none of those whose head is known.
    """
    model_type = config.get("model_type")
    if not has_head(model_type, task):
        raise UnsupportedError(
            f"model_type {str(model_type)[:60]!r} is planned without {task}",
            hint=f"these have it: {', '.join(with_head(task))}",
            field="recipe.task",
        )
    begins = read("families", str(model_type))["classes"]
    return {**config, "architectures": [f"{begins}{_ENDS[task]}"]}


def with_head(task: str) -> tuple[str, ...]:
    """Return the model types that have a head, encoders first."""
    return tuple(sorted((each for each in model_types() if has_head(each, task)), key=_is_decoder))


def has_head(model_type: object, task: str) -> bool:
    """Return whether models of a type are planned with a head for a task."""
    is_known = isinstance(model_type, str) and model_type in model_types()
    return is_known and task in read("families", str(model_type)).get("tasks", ())


def _is_decoder(model_type: str) -> bool:
    return read("families", model_type)["reader"] in _DECODERS
