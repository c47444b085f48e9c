"""The model part of a request: a name, or a config.json as no deeper an object than models have."""

from typing import Annotated, Any

from pydantic import AfterValidator

_DEEPEST_CONFIG = 64
"""Levels of a config.json; real ones have three or four, and what copies them walks down by recursion."""


def _shallow(model: str | dict[str, Any]) -> str | dict[str, Any]:
    """Refuse a config that no model has."""
    level: list[Any] = [model] if isinstance(model, dict) else []
    depth = 0
    while level:
        if depth > _DEEPEST_CONFIG:
            raise ValueError(f"is nested deeper than {_DEEPEST_CONFIG} levels")
        nested = (value.values() if isinstance(value, dict) else value for value in level)
        level = [inner for values in nested for inner in values if isinstance(inner, dict | list)]
        depth += 1
    return model


ModelRequest = Annotated[str | dict[str, Any], AfterValidator(_shallow)]
"""Hub id, catalogue name or path, or the config.json itself."""
