"""What a message names, worked with: the divisors that would do, the name that took a name's place, whose library crashed."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from planner.catalog.configs import signs, tool, trainer_fields
from planner.catalog.symptoms import Symptom, successors, xid_names

_LARGEST = 10**9
"""Of which divisors are looked for."""
_SHOWN = 8


class _UnansweredError(LookupError):
    """The numbers of a message do not give what a sentence is about."""


def worked_lines(symptom: Symptom, message: str) -> tuple[str, ...]:
    """Return what a message's own numbers and names say, in sentences."""
    return tuple(_sentences(symptom, message))


def _sentences(symptom: Symptom, message: str) -> Iterator[str]:
    for worked in symptom.worked:
        for found in re.finditer(worked.pattern, message, re.IGNORECASE):
            try:
                yield worked.says.format_map(_Values(found))
            except _UnansweredError:
                continue
            break


class _Values(dict[str, Any]):
    """A message's groups by name, and what follows from them."""

    def __init__(self, found: re.Match[str]) -> None:
        super().__init__({name: text for name, text in found.groupdict().items() if text})
        self._whole, self._part = self._factors("w"), self._factors("p")

    def _factors(self, letter: str) -> list[int]:
        return [
            int(text.replace(",", ""))
            for name, text in self.items()
            if re.fullmatch(rf"{letter}\d?", name)
        ]

    def __missing__(self, name: str) -> str:
        if name == "xid":
            unlisted = "in no list of NVIDIA's that is known here"
            return f"{self['n']} is {xid_names().get(int(self['n']), unlisted)}"
        if name == "successor":
            return _successor(self.get("of", ""), self["name"])
        if name == "place":
            return _place(self["name"].replace("-", "_"))
        if name in _FACTORS:
            return _FACTORS[name](self._whole, self._part)
        raise _UnansweredError


def _divisors(whole: list[int], _part: list[int]) -> str:
    number = math.prod(whole)
    if not 0 < number <= _LARGEST:
        raise _UnansweredError
    small = [each for each in range(1, math.isqrt(number) + 1) if number % each == 0]
    return _either(sorted({*small, *(number // each for each in small)})[:_SHOWN])


def _multiples(whole: list[int], part: list[int]) -> str:
    of = math.prod(part)
    if of <= 0:
        raise _UnansweredError
    below = math.prod(whole) // of * of
    return _either([each for each in (below, below + of) if each])


def _ratio(whole: list[int], part: list[int]) -> str:
    times, left = divmod(math.prod(whole), math.prod(part) or 1)
    if left or times <= 1:
        raise _UnansweredError
    return str(times)


def _product(factors: list[int]) -> str:
    text = " x ".join(map(str, factors))
    return f"{text} = {math.prod(factors)}" if len(factors) > 1 else text


_FACTORS: Mapping[str, Callable[[list[int], list[int]], str]] = MappingProxyType(
    {
        "whole": lambda whole, _: _product(whole),
        "part": lambda _, part: _product(part),
        "divisors": _divisors,
        "multiples": _multiples,
        "ratio": _ratio,
    }
)


def _either(numbers: list[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last


def _place(setting: str) -> str:
    """Return which tools have a setting of that name, in a section or on a command line."""
    of = (tool(each) for each in dict.fromkeys(sign.tool for sign in signs()) if each)
    tools = [t.title for t in of if any(key.rpartition(".")[2] == setting for key in t.known)]
    if not tools:
        raise _UnansweredError
    return f"a setting of {', '.join(tools)}"


def _successor(of: str, name: str) -> str:
    """Return what took the place of an argument of a class; of all that are TrainingArguments, of those."""
    fields = trainer_fields()
    tables = [table for named, table in successors().items() if of.endswith(named)]
    if of.endswith(("TrainingArguments", "Config")):
        tables.append({**fields.renamed, **fields.removed})
    for table in tables:
        if name in table:
            return f"in its place {table[name]}" if table[name] else "nothing takes its place"
    return f"help({of}) lists those that it has"
