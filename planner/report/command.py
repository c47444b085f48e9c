"""A request -> the command that asks the same."""

import json
from collections.abc import Mapping
from typing import Any

from planner.domain.strategy import DATA_NAMES
from planner.report.flags import flag_words, flags

SECTIONS = ("cluster", "recipe", "files", "strategy")
GOALS = ("objective", "max_gpus", "deadline_hours")
"""Fields of the request itself, each a flag of the terminal."""
_OTHERWISE = frozenset({"machine", "cluster.topology", "recipe.lora"})
"""Whose flags take something else than the field holds: a file, or a part of it."""


def request_words(request: Mapping[str, Any]) -> list[str] | None:
    """Return the words of the command that asks for a request's plan; None where no command can say it all."""
    sections = {name: _flat(request.get(name) or {}) for name in SECTIONS}
    said = {f"{name}.{field}" for name in SECTIONS[:-1] for field in sections[name]}
    rest = request.keys() - {*SECTIONS, *GOALS, "id", "why", "model"}
    is_sayable = said <= flags().keys() - _OTHERWISE and not rest
    if not is_sayable or not isinstance(request["model"], str):
        return None
    words = ["planner", "suggest", request["model"]]
    for name in SECTIONS[:-1]:
        words += section_words(name, sections[name])
    if "zero_stage" in sections["strategy"]:  # a family, which its flag takes, leaves less open
        words += ["--strategy", json.dumps(sections["strategy"])]
    else:
        words += section_words("strategy", sections["strategy"])
    return [*words, *goal_words(request)]


def section_words(section: str, values: Mapping[str, Any]) -> list[str]:
    """Return the flags that set a section's fields; a strategy with a field that has none is JSON."""
    values = _flat(values)
    fields = {f"{section}.{name}": _word(name, value) for name, value in values.items()}
    if not fields.keys() <= flags().keys():
        return ["--strategy", json.dumps(values)]
    return [word for field, value in fields.items() for word in flag_words(field, value=value)]


def goal_words(request: Mapping[str, Any]) -> list[str]:
    """Return the flags that say what is wished of a plan."""
    words: list[str] = []
    for name in GOALS:
        if request.get(name) is not None:
            unit = "h" if name == "deadline_hours" else ""
            words += flag_words(name, value=f"{request[name]}{unit}")
    return words


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": nested for inner, nested in value.items()}
        else:
            flat[name] = value
    return flat


def _word(name: str, value: object) -> str | bool:
    if isinstance(value, bool):
        return value
    if name == "global_batch_tokens":
        return f"{value}tokens"
    if name == "zero_stage":
        return DATA_NAMES[value] if isinstance(value, int) else str(value)
    return ",".join(value) if isinstance(value, list) else str(value)
