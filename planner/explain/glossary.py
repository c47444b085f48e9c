"""What can be explained: codes of rules and findings, and terms; the doors look them up here."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from inspect import cleandoc
from operator import or_

from planner.advice.rules import RULES
from planner.advice.rules.base import Rule
from planner.catalog.findings import explained, findings
from planner.catalog.glossary import Entry, Spelling, entries
from planner.catalog.symptoms import symptoms
from planner.configs import rules as configs
from planner.core.documented import documentation
from planner.core.errors import UnknownNameError, did_you_mean
from planner.core.frozen import frozen
from planner.doctor.answers import said_lines
from planner.doctor.messages import diagnose_text
from planner.doctor.refusals import refused
from planner.doctor.scripts import RULES as SCRIPT_RULES
from planner.doctor.texts import plain
from planner.doctor.timing_rules import RULES as TIMING_RULES
from planner.report.values import Terminal, columns_text
from planner.search.limits import LIMITS
from planner.search.limits.base import Limit

__all__ = [
    "Code",
    "Entry",
    "asked_of",
    "codes",
    "entries",
    "explain",
    "find_code",
    "find_message",
    "find_term",
    "listed",
    "messages",
    "paragraphs",
]

_LONGEST_NAME = 60
_LONGEST_MESSAGE = 10_000
_LETTERS = 3
_SEVERAL = 2
_CODE = re.compile(r"\b[A-Z]{3}\d{3}\b")
"""As it stands in a line that a command printed."""
_HEADING = re.compile(r"([A-Z]\w+(?: out)?): ")


@frozen
class Code:
    """A rule, a limit of layouts, or a finding (of a topology, a machine, a check), with its documentation."""

    code: str
    name: str
    severity: str
    text: str


@frozen
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
    """Return all rules and limits, then the findings about files, scripts, timings, a topology, a machine and a committed plan."""
    coded: tuple[Rule | Limit | configs.Rule, ...] = (*RULES, *LIMITS, *configs.RULES)
    of_layouts = tuple(
        Code(
            code=rule.code,
            name=rule.name,
            severity=str(rule.severity),
            text="\n\n".join((rule.text, *_printed(rule.code))),
        )
        for rule in coded
    )
    findings_by_kind = {
        "found-in-timings": {
            code: explained(documentation(rule), "timings", code) for code, rule in TIMING_RULES
        },
        "found-in-a-topology": findings("topology"),
        "found-by-the-probe": findings("probe"),
        "found-by-a-check": findings("check"),
    }
    of_scripts = tuple(
        Code(code=rule.code, name=rule.name, severity="finding", text=rule.text)
        for rule in SCRIPT_RULES
    )
    return (*of_layouts, *of_scripts, *_findings(findings_by_kind))


def _printed(code: str) -> tuple[str, ...]:
    """Return the messages that tools print where a rule is broken."""
    return tuple(f"Message: {each.said} ({each.code})" for each in symptoms() if code in each.rules)


def _findings(findings_by_kind: Mapping[str, Mapping[str, str]]) -> tuple[Code, ...]:
    return tuple(
        Code(code=code, name=name, severity="finding", text=cleandoc(text))
        for name, findings in findings_by_kind.items()
        for code, text in findings.items()
    )


def find_code(code: str) -> Code:
    """Return the rule or finding with that code, in any case.

    Raises:
        UnknownNameError: there is none.
    """
    known_code = {known.code: known for known in (*codes(), *messages())}.get(code.strip().upper())
    if known_code is None:
        raise _unknown("rule", code, (known.code for known in codes()))
    return known_code


def find_term(name: str) -> Entry:
    """Return the entry of that name, title or synonym; in any case, dashes as spaces.

    Raises:
        UnknownNameError: there is none.
    """
    entry = _entry(name)
    if entry is None:
        raise _unknown("term", name, _spellings())
    return entry


def asked_of(words: Sequence[str]) -> tuple[str, ...]:
    """Return what words of a command ask about: each by itself where they are names, else all as one message."""
    together = " ".join(words)
    known = {code.code for code in (*codes(), *messages())}
    are_known = [
        each.upper() in known or bool(_entry(each) or listed(each))
        for each in map(str.strip, words)
    ]
    are_codes = [_CODE.fullmatch(each.strip().upper()) is not None for each in words]
    if len(words) < _SEVERAL or _entry(together):
        return (together,)
    are_names = all(map(or_, are_known, are_codes))
    is_none = not any(are_codes) and any(are_known) and find_message(together) is None
    return tuple(words) if are_names or is_none else (together,)


def explain(name: str) -> Code | Entry:
    """Return what has that code or name, or is known of that message.

    Raises:
        UnknownNameError: nothing has; the hint lists the nearest of both.
    """
    known = {code.code: code for code in (*codes(), *messages())}
    within = (known[each] for each in _CODE.findall(name[:_LONGEST_MESSAGE]) if each in known)
    code_or_term = (
        known.get(name.strip().upper()) or _entry(name) or next(within, None) or find_message(name)
    )
    if code_or_term is None:
        raise _unknown("code or term", name, (*known, *_spellings()))
    return code_or_term


@cache
def messages() -> tuple[Code, ...]:
    """Return what is known of error messages, as codes."""
    return tuple(
        Code(code=each.code, name=each.name, severity="finding", text=each.text)
        for each in symptoms()
    )


def listed(
    letters: str,
) -> tuple[tuple[Code, ...], tuple[Code, ...], tuple[Entry, ...]] | None:
    """Return all rules and findings, messages and terms, or the codes that begin with three letters; None where none does."""
    if not letters:
        return codes(), messages(), entries()
    family = letters.strip().upper()
    if len(family) != _LETTERS or _entry(letters):
        return None
    rules, said = (
        tuple(each for each in known if each.code.startswith(family))
        for known in (codes(), messages())
    )
    return (rules, said, ()) if rules or said else None


def find_message(text: str) -> Code | None:
    """Return what is known of a message, with what its numbers say, or of the name of one."""
    found = diagnose_text(text[:_LONGEST_MESSAGE])
    symptom = found.main.symptom if found.main else refused(text)
    if symptom is None:
        wanted = _key(text).replace(" ", "-")
        return next((each for each in messages() if each.name == wanted), None)
    said = "; ".join(said_lines(found, None))
    numbers = f"\n\nNumbers: {said}" if said else ""
    return Code(
        code=symptom.code,
        name=symptom.name,
        severity="finding",
        text=symptom.text_of(plain(found.main.text if found.main else text)) + numbers,
    )


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


def entry_text(entry: Entry, terminal: Terminal) -> str:
    """Return an entry, folded to the terminal."""
    head = terminal.bold(entry.title)
    if entry.synonyms:
        head += f"\n{terminal.paragraph('also: ' + ', '.join(entry.synonyms))}"
    paragraphs = [
        terminal.paragraph(" ".join(paragraph.split())) for paragraph in entry.text.split("\n\n")
    ]
    names = [f"{terminal.bold('Names')}\n{_names(entry.names, terminal)}"] if entry.names else []
    see = f"See: {', '.join(entry.see)}"
    tail = [terminal.paragraph(see), terminal.paragraph(f"Source: {entry.source}")]
    return "\n\n".join((head, *paragraphs, *names, *tail))


def code_text(code: Code, terminal: Terminal) -> str:
    """Return what is documented of a code, folded to the terminal."""
    kind = "" if code.severity == "finding" else f" {code.name} ({code.severity})"
    paragraphs = (
        terminal.paragraph(" ".join(paragraph.split())) for paragraph in code.text.split("\n\n")
    )
    return "\n\n".join((f"{terminal.bold(code.code)}{kind}", *paragraphs))


def list_text(
    codes: Sequence[Code], messages: Sequence[Code], entries: Sequence[Entry], terminal: Terminal
) -> str:
    """Return the list of everything that can be explained: rules and findings, messages, then terms."""
    rules = [(code.code, code.severity, code.text.splitlines()[0]) for code in codes]
    said = [(message.code, message.text.splitlines()[0]) for message in messages]
    terms = [(entry.name, entry.title) for entry in entries]
    return "\n\n".join(
        f"{terminal.bold(title)}\n{columns_text(rows, terminal.width)}"
        for title, rows in (("Rules and findings", rules), ("Messages", said), ("Terms", terms))
        if rows
    )


def _names(names: Sequence[Spelling], terminal: Terminal) -> str:
    columns = [max(len(name.framework) for name in names), max(len(n.version) for n in names)]
    return "\n".join(
        terminal.paragraph(
            name.text,
            first=f"  {name.framework:<{columns[0]}}  {name.version:<{columns[1]}}  ",
            rest=" " * (sum(columns) + 6),
        )
        for name in names
    )
