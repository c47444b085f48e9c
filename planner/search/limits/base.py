"""What a limit is: a reason why a layout cannot run, or why the search does not propose it."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from planner.core.term import Truth, pick
from planner.core.units import UnitFormatter
from planner.domain.job import Job
from planner.domain.strategy import Strategy, Whole

_FORMATTER = UnitFormatter()


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """Which layouts break a limit, and what to say of one that does.

    The same breach holds for one layout and for a table of them, as a `Term` does.
    """

    broken: Truth
    """Whether the limit is broken, or a column of that."""
    message: str
    """A format string over `numbers`."""
    hint: str = ""
    """As `message`."""
    numbers: Mapping[str, object] = field(default_factory=dict)
    field: str
    """Of the wire contract."""

    def at(self, row: int) -> "Breach":
        """Return the breach of one row of a table."""
        numbers = {name: pick(value, row) for name, value in self.numbers.items()}
        return Breach(
            broken=bool(pick(self.broken, row)),
            message=self.message,
            hint=self.hint,
            numbers=numbers,
            field=self.field,
        )

    @property
    def reason(self) -> str:
        """Return the message with its numbers in."""
        return _FORMATTER.vformat(self.message, (), self.numbers)

    @property
    def advice(self) -> str:
        """Return the hint with its numbers in."""
        return _FORMATTER.vformat(self.hint, (), self.numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A code and the function that judges layouts; the function's docstring is the documentation."""

    code: str
    judge: Callable[[Job, Strategy], Breach]
    is_hard: bool = False
    """Nobody can run it, so it is not even estimated; other limits bind the search alone."""
    is_ability: bool = False
    """It is about what the framework can do."""

    severity = "limit"

    @property
    def name(self) -> str:
        """Return what is broken, in kebab case."""
        return getattr(self.judge, "__name__", "").replace("_", "-")

    @property
    def text(self) -> str:
        """Return the statement and its Why, Instead and Source."""
        return inspect.getdoc(self.judge) or ""


def divides(size: Whole, total: Whole) -> Truth:
    """Return whether size is a divisor of whole; either may be a column."""
    is_divisor: Truth = np.mod(total, np.maximum(size, 1)) == 0
    return is_divisor
