"""JSON as its standard has it; Python's reader takes NaN, Infinity and a name given twice besides."""

import json
from collections import Counter
from typing import Any, NoReturn

_MOST_DIGITS = 640
"""Python reads as many whatever its settings."""


def parse_json(text: str | bytes) -> Any:
    """Return the value that a user's text holds.

    Raises:
        ValueError: it is no JSON, is nested too deeply, or leaves open which value was meant; says which.
    """
    try:
        return json.loads(
            text,
            parse_int=read_whole,
            parse_constant=_refuse,
            object_pairs_hook=_with_each_name_once,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_whole(digits: str) -> int:
    """Return a whole number of JSON.

    Raises:
        ValueError: Python may refuse to read it; it has no use here either.
    """
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits, more than {_MOST_DIGITS}")
    return int(digits)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _with_each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; which of two values was meant by the same name, nobody can know."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"{twice[:80]!r} twice in one object")
    return found
