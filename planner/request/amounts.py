"""Amounts as people type them: 128k, 0.5M tokens, 20B, 36h."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from planner.core.errors import InvalidInputError

_AMOUNT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([kmbt]?)", re.IGNORECASE)
_BATCH = re.compile(rf"{_AMOUNT.pattern}\s*(tokens?|sequences?)?", re.IGNORECASE)
_DURATION = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,6})?)([mhd])")
_SCALE = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_SHOWN = 40


def read_length(text: str) -> int:
    """Return the tokens of a sequence: 4096 or, in units of 1,024, 128k = 131,072.

    Raises:
        InvalidInputError: it is no whole number of tokens.
    """
    match = _AMOUNT.fullmatch(text.strip())
    unit = match[2].lower() if match else "t"
    length = float(match[1]) * {"": 1, "k": 2**10, "m": 2**20}.get(unit, 0.5) if match else 0.5
    if length % 1:
        raise InvalidInputError(
            f"cannot read {text[:_SHOWN]!r} as the tokens of a sequence",
            hint="such as 4096, or 128k for 131072",
            field="recipe.sequence_length",
        )
    return int(length)


def read_batch(text: str) -> dict[str, int]:
    """Return the request's field: 512 are sequences; 0.5M, 4B or 524288 tokens are tokens.

    Raises:
        InvalidInputError: it is neither.
    """
    match = _BATCH.fullmatch(text.strip())
    unit, what = (match[2].lower(), (match[3] or "").lower()) if match else ("", "")
    if match and (what.startswith("token") or (not what and unit in {"m", "b"})):
        return {"global_batch_tokens": round(float(match[1]) * _SCALE[unit])}
    if match and not unit and float(match[1]).is_integer():
        return {"global_batch_size": int(float(match[1]))}
    raise InvalidInputError(
        f"cannot read {text[:_SHOWN]!r} as a global batch",
        hint="such as 512 for sequences, 0.5M or 524288tokens for tokens",
        field="recipe.global_batch_size",
    )


def read_tokens(text: str) -> int:
    """Return the number that 20B, 1.5T or 300000000 stands for.

    Raises:
        InvalidInputError: it is none.
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise InvalidInputError(
            f"cannot read {text[:_SHOWN]!r} as a number of tokens",
            hint="such as 20B, 1.5T or 300000000",
            field="recipe.training_tokens",
        )
    return round(float(match[1]) * _SCALE[match[2].lower()])


def read_hours(text: str) -> float:
    """Return the hours that 36h, 7d or 90m stand for.

    Raises:
        InvalidInputError: it is no such time.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidInputError(
            f"cannot read {text[:_SHOWN]!r} as a time",
            hint="such as 36h, 7d or 90m",
            field="deadline_hours",
        )
    return float(match[1]) * {"m": 1 / 60, "h": 1, "d": 24}[match[2]]


AMOUNTS: Mapping[str, Callable[[str], Any]] = {
    "length": read_length,
    "batch": read_batch,
    "tokens": read_tokens,
    "hours": read_hours,
}
"""What reads a field with a unit or other names, by its word in `data/request/fields.toml`: into its value, or fields."""
