"""Errors of functions that every door calls -> in the words of REST: fields in place of flags."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from planner.core.errors import PlannerError
from planner.report.flags import flags, names_of_switch

_OF_LAYOUTS = {"--pin": "strategy", "--strategy": "strategy"}
"""Flags that set more than one field of a layout."""
_WORDS = ("message", "hint")
_ROUTES = {
    **{name: f"GET /v1/{name}" for name in ("gpus", "instances", "links", "models")},
    "explain": "GET /v1/rules or /v1/terms",
    "memory": "POST /v1/memory",
    "suggest": "POST /v1/suggest",
}
"""That answer what a command does."""


@contextmanager
def in_fields(names: Mapping[str, str]) -> Iterator[None]:
    """Name the fields of a body where an error names flags, or what a terminal would be told to type.

    Args:
        names: of the body's fields, by what stands for them in errors.
    """
    try:
        yield
    except PlannerError as error:
        error.field = names.get(error.field, error.field)
        error.message, error.hint = (_named(text, names) for text in (error.message, error.hint))
        error.args = (error.message,)
        raise


def words_of(error: PlannerError) -> list[str]:
    """Return what kind of error it is, in words: NothingFitsError is Nothing, Fits."""
    return re.findall(r"[A-Z][a-z]*", type(error).__name__.removesuffix("Error"))


def urn_of(error: PlannerError) -> str:
    """Return the name of an error's kind, stable, for programs."""
    return f"urn:planner:{'-'.join(words_of(error)).lower()}"


def by_field(text: str) -> str:
    """Return a message or a hint with the fields of a request for the flags that set them, and routes for commands.

    A command with arguments stays as it is.
    """
    return _flags().sub(_in_words_of_rest, text)


def _in_words_of_rest(found: re.Match[str]) -> str:
    command = _ROUTES.get(found["command"] or "")
    return f"`{command}`" if command else _fields().get(found["flag"] or "", found[0])


def described_by_field(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error of a batch's line, and each of its problems, with fields for flags."""
    worded = {key: by_field(described[key]) for key in _WORDS}
    problems = [described_by_field(each) for each in described.get("problems", ())]
    return {**described, **worded, **({"problems": problems} if problems else {})}


def _named(text: str, names: Mapping[str, str]) -> str:
    longest_first = sorted(names, key=len, reverse=True)
    flags = "|".join(re.escape(name) for name in longest_first)
    return re.sub(rf"(?:{flags})(?![\w-])", lambda found: names[found[0]], text)


@cache
def _fields() -> Mapping[str, str]:
    """Return the field that each flag of a plan sets, the first where it sets several; of a switch, with its value for no."""
    found = dict(_OF_LAYOUTS)
    for field, flag in flags().items():
        name, _, value = flag.partition(" ")
        if name.startswith("--") and "," not in flag:
            yes, no = names_of_switch(name)
            found.setdefault(yes, field)
            found |= {} if value else {no: f"{field} false"}
    return found


@cache
def _flags() -> re.Pattern[str]:
    flags = "|".join(sorted(_fields(), key=len, reverse=True))
    return re.compile(
        rf"`planner (?P<command>[a-z]+)`|`[^`]*`|(?P<flag>{flags})(?![\w-])(?: [A-Z]+\b)?"
    )
