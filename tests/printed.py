"""What a printed line says, computed from its text alone: an interval as wide as its rounding."""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

_BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_DECIMAL = {"B/s": 1, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12}
_SECONDS = {"d": 86_400, "h": 3_600, "s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_ROUNDED = _BINARY | _DECIMAL | _SECONDS
"""Units whose numbers are rounded to the digits that are shown."""
_LEAST_SECONDS = 1e-11
"""What is shorter is shown as nothing."""
_NUMBER = re.compile(r"\d[\d,]*(\.\d+)?(e[+-]\d+)?$")
_COUNTED = 100
"""Whole numbers below it are exact: sizes, ranks, micro-batches, bytes of an element."""


_OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "x": operator.mul,
    "/": lambda a, b: a / b if b else math.inf,
    "max": max,
    "min": min,
}


@dataclass(frozen=True)
class Interval:
    low: float
    high: float

    def combine(self, sign: str, other: "Interval") -> "Interval":
        """Return what an operation can give."""
        operation = _OPERATIONS[sign]
        ends = [operation(a, b) for a, b in product((self.low, self.high), (other.low, other.high))]
        return Interval(min(ends), max(ends))

    def holds(self, amount: float) -> bool:
        """Return whether an amount is what was printed, but for the float's own rounding."""
        slack = 1e-9 * max(abs(amount), 1e-12)
        return self.low - slack <= amount <= self.high + slack

    @property
    def width(self) -> float:
        """Return how wide it is, relative to its middle."""
        middle = abs(self.low + self.high) / 2
        return (self.high - self.low) / middle if middle else 0.0


def evaluate(how: str) -> Interval:
    """Return what the arithmetic before the semicolon comes to."""
    words = how.split(";", maxsplit=1)[0].replace("(", " ( ").replace(")", " ) ").split()
    value, rest = _sum(words)
    if rest:
        raise ValueError(f"left over in {how!r}: {rest}")
    return value


def _sum(words: list[str]) -> tuple[Interval, list[str]]:
    value, words = _product(words)
    while words and words[0] in {"+", "-"}:
        other, rest = _product(words[1:])
        value, words = value.combine(words[0], other), rest
    return value, words


def _product(words: list[str]) -> tuple[Interval, list[str]]:
    value, words = _factor(words)
    while words and words[0] in {"x", "/"}:
        other, rest = _factor(words[1:])
        value, words = value.combine(words[0], other), rest
    return value, words


def _factor(words: list[str]) -> tuple[Interval, list[str]]:
    if words[0] == "(":
        value, rest = _sum(words[1:])
        return value, _skip(rest[1:])
    if words[0] in {"max", "min"}:
        one, rest = _sum(words[2:])
        other, rest = _sum(rest)
        return one.combine(words[0], other), _skip(rest[1:])
    number = words[0].rstrip(",")
    if not _NUMBER.match(number):
        raise ValueError(f"no number: {words}")
    return _number(number, words[1] if len(words) > 1 else ""), _skip(words[1:])


def _number(text: str, unit: str) -> Interval:
    value, unit = float(text.replace(",", "")), unit.rstrip(",")
    unit = unit if unit in _DECIMAL else unit.split("/")[0]
    scale = _ROUNDED.get(unit, 1.0)
    decimals = len(text.partition(".")[2].partition("e")[0])
    if unit in _SECONDS and not value:
        half = _LEAST_SECONDS / 2
    elif unit in _ROUNDED and value:
        half = 0.5 * 10**-decimals
    elif unit == "%":
        value, half = value / 100, _half_of_digits(value / 100, 3)
    elif decimals or "e" in text:
        half = _half_of_digits(value, 6)
    else:
        half = 0.5 if value >= _COUNTED else 0.0
    return Interval((value - half) * scale, (value + half) * scale)


def _half_of_digits(value: float, digits: int) -> float:
    """Return half a unit of the last of so many significant digits."""
    return 0.5 * 10 ** (math.floor(math.log10(value)) - digits + 1) if value else 0.0


def _skip(words: list[str]) -> list[str]:
    """Leave out what a number is of."""
    for index, word in enumerate(words):
        if word in {"+", "-", "x", "/", ")"}:
            return words[index:]
        if any(character.isdigit() for character in word):
            if index and words[index - 1].endswith(","):
                return words[index:]
            raise ValueError(f"a figure outside the arithmetic: {words}")
        if word in {"max", "min"}:
            return words[index:]
    return []
