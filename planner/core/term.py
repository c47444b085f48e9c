"""A number together with the arithmetic that gave it: an amount is computed from what its line prints.

An expression holds for one layout, or for a table of them (its quantities are columns). It is spelled
out for one: sums leave out what is zero there, and of several ways to compute it the layout's own is
shown. Words never hold digits, so that every figure of a line takes part in its arithmetic; what only
explains stands behind a semicolon.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.core.frozen import frozen
from planner.core.units import UnitFormatter

Amount: TypeAlias = float | NDArray[np.number[Any]]
"""One number, or a column with one number per strategy: whole numbers or floats."""

Truth: TypeAlias = bool | NDArray[np.bool_]
"""Whether something holds, for one strategy or row by row."""

Column: TypeAlias = NDArray[Any]

_FORMATTER = UnitFormatter()
_SUM, _PRODUCT, _ATOM = range(3)
"""How strongly an operation binds."""
_BINDING = MappingProxyType({"+": _SUM, "-": _SUM, "x": _PRODUCT, "/": _PRODUCT})
_OPERATIONS: Mapping[str, Callable[[Amount, Amount], Amount]] = MappingProxyType(
    {
        "+": operator.add,
        "-": operator.sub,
        "x": operator.mul,
        "/": np.divide,
        "max": np.maximum,
        "min": np.minimum,
    }
)


class Expression(ABC):
    """What an amount is made of: quantities, operations on them, a choice between expressions."""

    __slots__ = ()

    @property
    @abstractmethod
    def value(self) -> Amount:
        """Return the amount, per row of a table."""

    @property
    @abstractmethod
    def text(self) -> str:
        """Return the arithmetic of one layout with its numbers in."""

    @abstractmethod
    def at(self, row: int) -> "Expression":
        """Return the expression of one row of a table."""

    @property
    def binding(self) -> int:
        """Return how strongly it binds: as a sum, a product, or as what needs no parentheses."""
        return _ATOM

    def __add__(self, other: "Expression") -> "Expression":
        """Return the sum."""
        return Operation("+", self, other)

    def __sub__(self, other: "Expression") -> "Expression":
        """Return the difference."""
        return Operation("-", self, other)

    def __mul__(self, other: "Expression") -> "Expression":
        """Return the product."""
        return Operation("x", self, other)

    def __truediv__(self, other: "Expression") -> "Expression":
        """Return the quotient."""
        return Operation("/", self, other)


@dataclass(frozen=True, slots=True)
class Quantity(Expression):
    """A number that is printed, with its unit and what it is of."""

    number: Amount
    unit: str
    """A format spec of `core.units.UnitFormatter`."""
    words: str = ""

    @property
    def value(self) -> Amount:
        """Return the number."""
        return self.number

    @property
    def text(self) -> str:
        """Return the number with its unit and words."""
        number = _FORMATTER.format_field(self.number, self.unit)
        return f"{number}{'' if self.words[:1] in ('', '/') else ' '}{self.words}"

    def at(self, row: int) -> "Quantity":
        """Return the quantity of one row of a table; itself where all rows have the same."""
        if not isinstance(self.number, np.ndarray):
            return self
        return Quantity(pick(self.number, row), self.unit, self.words)


@dataclass(frozen=True, slots=True)
class Operation(Expression):
    """A sum, difference, product, quotient, or the larger or smaller of two."""

    sign: str
    left: Expression
    right: Expression
    result: Amount = field(init=False)

    def __post_init__(self) -> None:
        """Compute the result."""
        result = _OPERATIONS[self.sign](self.left.value, self.right.value)
        object.__setattr__(self, "result", result)

    @property
    def value(self) -> Amount:
        """Return the result."""
        return self.result

    @property
    def binding(self) -> int:
        """Return that of the sign; a sum of which one side is zero binds as the other does."""
        shown = self._only_side()
        return _BINDING.get(self.sign, _ATOM) if shown is None else shown.binding

    @property
    def text(self) -> str:
        """Return both sides with the sign between them."""
        shown = self._only_side()
        if shown is not None:
            return shown.text
        if self.sign not in _BINDING:
            return f"{self.sign}({self.left.text}, {self.right.text})"
        # `a - (b + c)` and `a / (b x c)` need their parentheses, `a + (b - c)` and `a x (b / c)` do not.
        strict, binding = self.sign in "-/", _BINDING[self.sign]
        left = _enclosed(self.left, binding)
        right = _enclosed(self.right, binding + strict)
        return f"{left} {self.sign} {right}"

    def _only_side(self) -> Expression | None:
        if self.sign not in "+-":
            return None
        if self.right.value == 0:
            return self.left
        return self.right if self.left.value == 0 and self.sign == "+" else None

    def at(self, row: int) -> "Operation":
        """Return the operation of one row of a table; itself where all rows have the same."""
        left, right = self.left.at(row), self.right.at(row)
        if left is self.left and right is self.right:
            return self
        return Operation(self.sign, left, right)


@dataclass(frozen=True, slots=True)
class RowChoice(Expression):
    """One of several expressions for each row of a table."""

    index: NDArray[np.int64]
    options: tuple[Expression, ...]

    @property
    def value(self) -> Amount:
        """Return each row's own value, looked up when asked for: a search asks for few."""
        match self.options:
            case (other, one):  # several times as quick as np.choose
                return np.where(self.index, one.value, other.value)
        values = np.broadcast_arrays(self.index, *(option.value for option in self.options))[1:]
        return np.choose(self.index, values)

    @property
    def text(self) -> str:
        """Return nothing: a table is not spelled out."""
        raise TypeError("the arithmetic of a table is spelled out row by row")

    def at(self, row: int) -> Expression:
        """Return the row's own expression."""
        return self.options[int(pick(self.index, row))].at(row)


def choose(index: Column | int, options: tuple[Expression, ...]) -> Expression:
    """Return the expression of that index, for each row its own."""
    if all(option is options[0] for option in options):
        return options[0]
    return options[int(index)] if np.ndim(index) == 0 else RowChoice(np.asarray(index), options)


def either(condition: Truth, one: Expression, other: Expression) -> Expression:
    """Return one expression where the condition holds, else the other."""
    return choose(np.asarray(condition, dtype=np.int64), (other, one))


def only_where(condition: Truth, expression: Expression) -> Expression:
    """Return an expression where the condition holds, else nothing."""
    return either(condition, expression, NOTHING)


def add(expressions: Iterable[Expression]) -> Expression:
    """Return the sum of several."""
    return reduce(operator.add, expressions)


def largest(*expressions: Expression) -> Expression:
    """Return the largest of several."""
    return reduce(lambda one, other: Operation("max", one, other), expressions)


def smallest(*expressions: Expression) -> Expression:
    """Return the smallest of several."""
    return reduce(lambda one, other: Operation("min", one, other), expressions)


def plain(value: Amount, words: str = "") -> Quantity:
    """Return a number without a unit."""
    return Quantity(value, "g", words)


def count(value: Amount, words: str) -> Quantity:
    """Return a number of things, in full."""
    return Quantity(value, ",.0f", words)


def percent(value: Amount, words: str = "") -> Quantity:
    """Return a fraction, shown as a percentage."""
    return Quantity(value, "percent", words)


def bytes_each(value: Amount) -> Quantity:
    """Return the bytes of one element."""
    return Quantity(value, "g", "B")


def size(value: Amount, words: str = "") -> Quantity:
    """Return a number of bytes."""
    return Quantity(value, "bytes", words)


def seconds(value: Amount, words: str = "") -> Quantity:
    """Return a duration."""
    return Quantity(value, "seconds", words)


def rate(value: Amount, words: str = "") -> Quantity:
    """Return a bandwidth, in bytes per second."""
    return Quantity(value, "rate", words)


def gpus(value: Amount) -> Quantity:
    """Return a number of GPUs."""
    return Quantity(value, "GPUs")


def ranks(value: Amount) -> Quantity:
    """Return a number of ranks."""
    return Quantity(value, "ranks")


def micro_batches(value: Amount) -> Quantity:
    """Return a number of micro-batches."""
    return Quantity(value, "micro-batches")


def _enclosed(expression: Expression, binding: int) -> str:
    return f"({expression.text})" if expression.binding < binding else expression.text


@dataclass(frozen=True, slots=True)
class RowWords:
    """Words of which each row of a table has its own."""

    say: Callable[[int], str]

    def at(self, row: int) -> str:
        """Return the words of one row."""
        return self.say(row)


@frozen
class Term:
    """One line of a ledger: bytes or seconds; the ledger that holds it says which."""

    name: str
    arithmetic: Expression
    note: tuple[str | Quantity | RowWords, ...] = ()
    """What explains the numbers without being part of their arithmetic."""
    parts: tuple["Term", ...] = ()
    """What the term opens into: they sum to it."""
    source: str
    """Paper, file or measurement that the formula and its constants come from."""
    spread: Amount = 0.0
    """How far the likely error reaches to each side, as a fraction of the amount."""
    applies: Truth = True
    """Whether the layout has it at all; a row of a table shows no term that only others have."""

    @property
    def amount(self) -> Amount:
        """Return what the arithmetic gives."""
        return self.arithmetic.value

    @property
    def how(self) -> str:
        """Return the arithmetic of one layout with its numbers in, and what explains them."""
        note = "".join(each.text if isinstance(each, Quantity) else str(each) for each in self.note)
        note = note if self.amount else ""
        return f"{self.arithmetic.text}; {note}" if note else self.arithmetic.text

    def at(self, row: int) -> "Term":
        """Return this term for one row of the table."""
        return Term(
            name=self.name,
            arithmetic=self.arithmetic.at(row),
            note=tuple(each if isinstance(each, str) else each.at(row) for each in self.note),
            parts=tuple(part.at(row) for part in self.parts),
            source=self.source,
            spread=pick(self.spread, row),
        )


class RowTerms(Collection[Term]):
    """The terms of one row of a table, taken out of it when they are looked at: few rows are shown."""

    def __init__(self, terms: Collection[Term], row: int) -> None:
        """Remember which row of which terms."""
        self._terms = terms
        self._row = row

    @cached_property
    def _taken(self) -> tuple[Term, ...]:
        return tuple(term.at(self._row) for term in self._terms if pick(term.applies, self._row))

    def __iter__(self) -> Iterator[Term]:
        return iter(self._taken)

    def __len__(self) -> int:
        return len(self._taken)

    def __contains__(self, term: object) -> bool:
        return term in self._taken

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowTerms) and self._taken == other._taken

    def __hash__(self) -> int:
        return hash(self._taken)


def pick(value: Any, row: int) -> Any:
    """Return the row's entry of a column; a plain value holds for every row."""
    if isinstance(value, np.ndarray):
        return (value[row] if value.ndim else value).item()
    return value


def is_one_of(amounts: Amount, values: Iterable[float]) -> Truth:
    """Return which amounts are one of a few values; of many, np.isin is the faster."""
    column = np.asarray(amounts)
    found: Truth = np.zeros(column.shape, dtype=np.bool_)
    for value in values:
        found |= column == value
    return found


def total(terms: Iterable[Term]) -> Amount:
    """Return the sum of the terms, per row where they are columns."""
    return sum((term.amount for term in terms), 0.0)


def greatest(amounts: Iterable[Amount]) -> Amount:
    """Return the largest of several amounts, row by row; 0 of none."""
    most: Amount = 0.0
    for amount in amounts:
        most = np.maximum(most, amount)
    return most


NOTHING = plain(0.0)
"""What a layout does not have."""
