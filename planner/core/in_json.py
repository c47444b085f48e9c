"""A value of a request or a config, as an error shows it."""

import reprlib

_LONGEST = 60
_MOST_DIGITS = 24
"""Of a whole number that is shown; nobody counts more."""


class _InJson(reprlib.Repr):
    """Python's short form of a value, with JSON's words for true, false and nothing."""

    def repr_bool(self, value: bool, _level: int) -> str:  # noqa: FBT001 - reprlib gives it so
        return "true" if value else "false"

    def repr_NoneType(self, _value: None, _level: int) -> str:  # noqa: N802 - asked for by the type's name
        return "null"


_IN_JSON = _InJson()
_IN_JSON.maxstring = _LONGEST


def in_json(value: object) -> str:
    """Return the beginning of a value that may be of any size and depth, in the words of JSON."""
    try:
        if isinstance(value, int) and abs(value) >= 10**_MOST_DIGITS:
            return f"a number of {len(str(abs(value))):,} digits"
        return _IN_JSON.repr(value)[:_LONGEST]
    except ValueError:
        return "a number of thousands of digits"
