"""A page with small forms and, once one is sent, what it is answered."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from planner.catalog.records import read
from planner.core.errors import InvalidRequestError, PlannerError, Problem, problems_of
from web.controls import Control, choices_of
from web.form import unknown_parameters
from web.sheet import Fact, SheetTable

_FLAG = re.compile(r"--([a-z][a-z-]{0,40}[a-z])")
_WHOLE = re.compile(r"\d{1,18}")
_BOUNDS = {"lowest", "highest"}
_RANGE = {*_BOUNDS, "is_whole"}
"""Of a number that is filled in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing that was found."""

    text: str
    code: str = ""
    level: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An answer: its sentence, figures, findings, tables, texts to copy."""

    title: str
    lead: str = ""
    facts: tuple[Fact, ...] = ()
    items: tuple[Item, ...] = ()
    tables: tuple[SheetTable, ...] = ()
    blocks: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolForm:
    """Inputs that are sent together."""

    legend: str
    controls: tuple[Control, ...]
    button: str
    method: str = "get"
    """`post` where a text is too long for a link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """What a number may be."""

    lowest: float
    highest: float
    is_whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A page: where it is, and what it asks."""

    path: str
    title: str
    lead: str
    forms: tuple[ToolForm, ...]
    numbers: Mapping[str, Number] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    """What a terminal calls a control, where that is not its name."""

    @property
    def labels(self) -> dict[str, str]:
        """Return the label of each control by its name."""
        return {control.name: control.label for form in self.forms for control in form.controls}

    def read(self, said: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Return what was filled in; what is pasted keeps its blanks.

        Raises:
            InvalidRequestError: a parameter is none of the page's.
        """
        values = {name: text.replace("\r\n", "\n") for name, text in said if text.strip()}
        unknown = [name for name in values if name not in self.labels]
        if unknown:
            raise InvalidRequestError(unknown_parameters(unknown, self.labels))
        return {name: text if "\n" in text else text.strip() for name, text in values.items()}

    def read_numbers(self, values: Mapping[str, str]) -> dict[str, float]:
        """Return the numbers that were filled in.

        Raises:
            InvalidRequestError: with every one that is none, or out of bounds.
        """
        found = {name: _number(values[name], self.numbers[name]) for name in self._numeric(values)}
        wrong = tuple(
            Problem(field=name, message=f"{values[name][:40]!r} is no {_said(kind)}", hint="")
            for name, kind in self.numbers.items()
            if name in found and found[name] is None
        )
        if wrong:
            raise InvalidRequestError(wrong)
        return {name: number for name, number in found.items() if number is not None}

    def problems(self, error: PlannerError) -> tuple[Problem, ...]:
        """Return what is wrong, at the control that it is about and by its label."""
        return tuple(
            replace(
                problem,
                field=self._control(problem.field),
                message=self.labelled(problem.message.removeprefix(f"{problem.field}: ")),
                hint=self.labelled(problem.hint),
            )
            for problem in problems_of(error)
        )

    def labelled(self, text: str) -> str:
        """Return a sentence with the labels of the page in place of a terminal's flags."""

        def label(found: re.Match[str]) -> str:
            name = self._control(found[0])
            return f"\u201c{self.labels[name]}\u201d" if name in self.labels else found[0]

        return _FLAG.sub(label, text)

    def _numeric(self, values: Mapping[str, str]) -> list[str]:
        return [name for name in self.numbers if name in values]

    def _control(self, name: str) -> str:
        plain = self.fields.get(name, name.removeprefix("--").replace("-", "_"))
        return plain if plain in self.labels else plain.rpartition(".")[2]


_COLUMNS = {"number": 3, "textarea": 12}


def read_tool(name: str) -> Tool:
    """Return a page of `data/request/tools.toml`."""
    said = read("request", "tools")[name]
    forms = tuple(
        ToolForm(**{**form, "controls": tuple(map(_control, form["controls"]))})
        for form in said["forms"]
    )
    inputs = [each for form in said["forms"] for each in form["controls"]]
    numbers = {
        each["name"]: Number(**{key: each[key] for key in _RANGE & each.keys()})
        for each in inputs
        if each.keys() >= _BOUNDS
    }
    return Tool(**{**said, "forms": forms, "numbers": numbers})


def _control(said: Mapping[str, Any]) -> Control:
    kind = said.get("kind", "text")
    shown = {"columns": _COLUMNS.get(kind, 4), "kind": kind}
    shown |= {key: said[key] for key in said.keys() - _RANGE}
    if "choices" in said:
        shown["choices"] = choices_of(said["choices"])
    return Control(**shown)


def _number(text: str, kind: Number) -> float | None:
    try:
        value = int(text) if kind.is_whole and _WHOLE.fullmatch(text) else float(text[:40])
    except ValueError:
        return None
    is_right = math.isfinite(value) and kind.lowest <= value <= kind.highest
    return value if is_right and (not kind.is_whole or isinstance(value, int)) else None


def _said(kind: Number) -> str:
    what = "whole number" if kind.is_whole else "number"
    return f"{what} from {kind.lowest:g} to {kind.highest:g}"
