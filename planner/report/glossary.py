"""What can be explained: codes of rules and findings, and terms; the doors look them up here."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from planner.advice.rules import RULES, Rule
from planner.catalog.glossary import Entry, entries
from planner.core.errors import UnknownNameError, did_you_mean
from planner.hardware import probe, topology
from planner.search.limits import LIMITS, Limit

__all__ = ["Code", "Entry", "codes", "entries", "explain", "find_code", "find_term", "paragraphs"]

_LONGEST_NAME = 60
_HEADING = re.compile(r"([A-Z]\w+(?: out)?): ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A rule, a limit of layouts, or a finding about a topology or a machine, with its documentation."""

    code: str
    name: str
    severity: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """A paragraph of a documentation, on one line."""

    heading: str
    """Such as Why, Instead or Source; "" for plain text."""
    text: str


def paragraphs(text: str) -> tuple[Paragraph, ...]:
    """Return the paragraphs of a code's or an entry's text."""
    lines = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return tuple(_paragraph(line) for line in lines)


def _paragraph(line: str) -> Paragraph:
    heading = _HEADING.match(line)
    if heading is None:
        return Paragraph(heading="", text=line)
    return Paragraph(heading=heading[1], text=line[heading.end() :])


@cache
def codes() -> tuple[Code, ...]:
    """Return all rules and limits, then the findings about a topology, then those about a machine."""
    coded: tuple[Rule | Limit, ...] = (*RULES, *LIMITS)
    judged = tuple(
        Code(code=each.code, name=each.name, severity=str(each.severity), text=each.text)
        for each in coded
    )
    found = {"found-in-a-topology": topology.FINDINGS, "found-by-the-probe": probe.FINDINGS}
    return judged + tuple(
        Code(code=code, name=name, severity="finding", text=text.strip())
        for name, findings in found.items()
        for code, text in findings.items()
    )


def find_code(code: str) -> Code:
    """Return the rule or finding with that code, in any case.

    Raises:
        UnknownNameError: there is none.
    """
    found = {each.code: each for each in codes()}.get(code.strip().upper())
    if found is None:
        raise _unknown("rule", code, (each.code for each in codes()))
    return found


def find_term(name: str) -> Entry:
    """Return the entry of that name, title or synonym; in any case, dashes as spaces.

    Raises:
        UnknownNameError: there is none.
    """
    found = _entry(name)
    if found is None:
        raise _unknown("term", name, _spellings())
    return found


def explain(name: str) -> Code | Entry:
    """Return what has that code or name.

    Raises:
        UnknownNameError: nothing has; the hint lists the nearest of both.
    """
    known = {each.code: each for each in codes()}
    found = known.get(name.strip().upper()) or _entry(name)
    if found is None:
        raise _unknown("code or term", name, (*known, *_spellings()))
    return found


def _entry(name: str) -> Entry | None:
    by_spelling = _by_spelling()
    return by_spelling.get(_key(name)) or by_spelling.get(_squeezed(name))


def _key(name: str) -> str:
    return re.sub(r"[\W_]+", " ", name.lower()).strip()


def _squeezed(name: str) -> str:
    return _key(name).replace(" ", "")


@cache
def _by_spelling() -> dict[str, Entry]:
    """Return entries by spelling, with and without its spaces where that is nobody's spelling.

    nn.DataParallel is not data parallelism, so "DataParallel" is not "data parallel".
    """
    pairs = [
        (spelling, entry)
        for entry in entries()
        for spelling in (entry.name, entry.title, *entry.synonyms)
    ]
    squeezed = {_squeezed(spelling): entry for spelling, entry in pairs}
    return squeezed | {_key(spelling): entry for spelling, entry in pairs}


def _spellings() -> tuple[str, ...]:
    return tuple(spelling for entry in entries() for spelling in (entry.name, *entry.synonyms))


def _unknown(what: str, name: str, known: Iterable[str]) -> UnknownNameError:
    hint = did_you_mean(name, known) or "`planner explain` lists all codes and terms"
    return UnknownNameError(f"unknown {what} {name[:_LONGEST_NAME]!r}", hint=hint, field="code")
