"""A number together with the arithmetic that gave it and where the formula comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.core.units import UnitFormatter

Amount: TypeAlias = Any
"""One number, or a column with one number per strategy."""

Column: TypeAlias = NDArray[Any]

_FORMATTER = UnitFormatter()


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One line of a ledger.

    The same term holds for one strategy (`amount` is a number) and for a table of them (`amount`
    and `numbers` hold columns). The arithmetic is only spelled out for one.
    """

    name: str
    amount: Amount
    """Bytes or seconds; the ledger that holds the term says which."""
    formula: str
    """The arithmetic as a format string over `numbers`, units as format specs."""
    numbers: Mapping[str, Amount] = field(default_factory=dict)
    source: str
    """Paper, file or measurement that the formula and its constants come from."""
    spread: Amount = 0.0
    """How far the likely error reaches to each side, as a fraction of the amount."""

    @property
    def how(self) -> str:
        """Return the arithmetic with its numbers in."""
        return _FORMATTER.vformat(self.formula, (), self.numbers)

    def at(self, row: int) -> "Term":
        """Return this term for one row of the table."""
        return Term(
            name=self.name,
            amount=pick(self.amount, row),
            formula=self.formula,
            numbers={name: pick(value, row) for name, value in self.numbers.items()},
            source=self.source,
            spread=pick(self.spread, row),
        )


def pick(value: Amount, row: int) -> Amount:
    """Return the row's entry of a column; a plain value holds for every row."""
    if isinstance(value, np.ndarray):
        return (value[row] if value.ndim else value).item()
    return value


def total(terms: tuple[Term, ...]) -> Amount:
    """Return the sum of the terms, per row where they are columns."""
    return sum(term.amount for term in terms)
