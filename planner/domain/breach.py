"""Why a layout will not do: what breaks, and what to say of it."""

from collections.abc import Mapping
from dataclasses import field

from planner.core.frozen import frozen
from planner.core.term import Truth, pick
from planner.core.units import UnitFormatter

_FORMATTER = UnitFormatter()


@frozen
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
