"""Typed access to a config.json that may hold anything."""

import re
from collections.abc import Mapping
from typing import Any

from planner.core.errors import InvalidInputError
from planner.core.in_json import in_json

LARGEST = 10**9
"""No size in a real config exceeds this; a larger one is a typing error or an attack."""
MOST_LAYERS = 4096
"""Of any stack of blocks: a plan holds figures of each."""
_LAYERS = re.compile(r"(.*_)?n?_?layers?|depth")
"""Fields that count blocks."""

NAMELESS = "config.json"
"""What the model of a config.json is called that came without a name."""


class Config:
    """A config.json whose fields are checked as they are read.

    Raises:
        InvalidInputError: from every reader method, when the field is missing without a default,
            has the wrong type, or is out of range.
    """

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self.name = name[:80]
        self.values = values

    @property
    def where(self) -> str:
        """Return what errors call the file: of which model, where that is known."""
        return self.name if self.name == NAMELESS else f"config.json of {self.name!r}"

    def size(self, key: str, default: int | None = None) -> int:
        """Return a positive whole number. A null counts as missing."""
        value = self.values.get(key)
        if value is None:
            value = default
        most = MOST_LAYERS if _LAYERS.fullmatch(key) else LARGEST
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise self._invalid(key, value, f"a whole number from 1 to {most:,}")
        return value

    def probability(self, key: str, default: float = 0.0) -> float:
        """Return a number in [0, 1). A null counts as missing."""
        value = self.values.get(key)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise self._invalid(key, value, "a number from 0 to below 1")
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """Return true or false. A null counts as missing."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._invalid(key, value, "true or false")
        return value

    def text(self, key: str, default: str) -> str:
        """Return a string. A null counts as missing."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self._invalid(key, value, "a string")
        return value

    def head_class(self) -> str:
        """Return the first name under `architectures`, or an empty string."""
        names = self.values.get("architectures") or [""]
        if not isinstance(names, list) or not isinstance(names[0], str):
            raise self._invalid("architectures", names, "a list of class names")
        return names[0]

    def divided(self, key: str, value: int, by_key: str, by: int) -> int:
        """Return value / by where it divides without a rest."""
        if value % by:
            raise InvalidInputError(
                f"{self.where}: {key} {value} is not a multiple of {by_key} {by}",
                field="model",
            )
        return value // by

    def _invalid(self, key: str, value: object, wanted: str) -> InvalidInputError:
        shown = "missing" if value is None else in_json(value)
        return InvalidInputError(
            f"{self.where}: {key} is {shown}; it must be {wanted}", field="model"
        )
