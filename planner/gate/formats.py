"""Verdicts and differences -> what people read in a terminal and in a pull request, and JSON."""

import json
import re
from collections.abc import Iterable, Sequence

from planner.gate.differences import Change
from planner.gate.facts import one_line
from planner.gate.limits import FINDING, FITS, Check
from planner.gate.verdict import CONFIGURATION, Verdict, verdicts_answer
from planner.report.values import Terminal, columns_text

_MARKS = {"pass": "pass", "warning": "warn", "error": "FAIL"}
_SYMBOLS = {
    "pass": "\N{WHITE HEAVY CHECK MARK}",
    "warning": "\N{WARNING SIGN}",
    "error": "\N{CROSS MARK}",
}
_IN_MARKDOWN = re.compile(r"(@|#|:(?=//)|www(?=\.))|([\\`*_\[\]<>|~$&])", re.IGNORECASE)
"""What makes a mention, a reference or a link of the words after it; what is syntax."""
_APART = "\N{ZERO WIDTH SPACE}"
_HEAD = ("what", "before", "after", "change")


def as_text(verdicts: tuple[Verdict, ...], terminal: Terminal) -> str:
    """Return the verdicts for a terminal."""
    return "\n\n".join(_text(verdict, terminal) for verdict in verdicts)


def _text(verdict: Verdict, terminal: Terminal) -> str:
    head = terminal.bold(f"{one_line(verdict.document.file)}: {verdict.title}")
    lines, hint = [head], ""
    for check in verdict.checks:
        first = f"  {_MARKS[check.level]}  {check.code}  "
        text = f"{_place(check, verdict)}{check.message}"
        lines.append(terminal.paragraph(text, first=first, rest=" " * len(first)))
        if check.hint and check.hint != hint:
            hint, indent = check.hint, " " * len(first)
            lines.append(terminal.paragraph(f"hint: {check.hint}", first=indent, rest=indent))
    if verdict.baseline is not None:
        lines.append(changes_text(verdict.changes, verdict.baseline, terminal))
    lines += (terminal.paragraph(note, first="  ", rest="  ") for note in verdict.notes)
    if verdict.patch:
        lines.append(f"\nThis mends what one line mends:\n\n{verdict.patch.rstrip()}\n")
    return "\n".join([*lines, verdict.sentence])


def _place(check: Check, verdict: Verdict) -> str:
    """Return what a check's message begins with: its name, or its place in a configuration.

    Nothing stands before a sentence: a finding's, and that something does not fit.
    """
    if verdict.document.kind == CONFIGURATION and check.file:
        return f"{check.file}:{check.line}: "
    is_too_large = check.code == FITS and check.level == "error"
    return "" if is_too_large or check.name == FINDING else f"{check.name}: "


def changes_text(changes: Sequence[Change], baseline: str, terminal: Terminal) -> str:
    """Return what differs from a baseline, for a terminal."""
    if not changes:
        return f"Nothing differs from {one_line(baseline)}"
    rows = [_HEAD, *map(_cells, changes)]
    return f"Different from {one_line(baseline)}\n{columns_text(rows, terminal.width - 2)}"


def _cells(change: Change) -> tuple[str, ...]:
    return change.label, change.before_text, change.after_text, change.growth_text


def as_json(verdicts: tuple[Verdict, ...], _terminal: Terminal) -> str:
    """Return the verdicts as JSON."""
    return json.dumps(verdicts_answer(verdicts), indent=2)


def as_markdown(verdicts: tuple[Verdict, ...], _terminal: Terminal) -> str:
    """Return the verdicts for a comment or a step summary."""
    return "\n\n".join(map(_markdown, verdicts))


def _markdown(verdict: Verdict) -> str:
    symbol = _SYMBOLS["error" if verdict.broken else "pass"]
    lines = [
        f"### {symbol} {escaped(verdict.title)}",
        "",
        f"{escaped(verdict.document.file)}: {escaped(verdict.sentence)}.",
    ]
    lines += ["", "| | check | |", "| --- | --- | --- |"] if verdict.checks else []
    for check in verdict.checks:
        hint = f"<br>hint: {escaped(check.hint)}" if check.hint else ""
        lines.append(
            f"| {_SYMBOLS[check.level]} | {escaped(check.name)} ({escaped(check.code)}) |"
            f" {escaped(check.message)}{hint} |"
        )
    if verdict.baseline is not None:
        lines += ["", changes_markdown(verdict.changes, verdict.baseline)]
    if verdict.notes:
        lines += ["", *(f"- {escaped(note)}" for note in verdict.notes)]
    if verdict.patch:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", verdict.patch)), default=0))
        lines += ["", f"{fence}diff", verdict.patch.rstrip("\n"), fence]
    if verdict.document.facts and verdict.document.facts.assumptions:
        assumed = "; ".join(map(escaped, verdict.document.facts.assumptions))
        lines += ["", f"Assumed: {assumed}."]
    return "\n".join(lines)


def changes_markdown(changes: Sequence[Change], baseline: str) -> str:
    """Return what differs from a baseline, as a table of Markdown."""
    if not changes:
        return f"Nothing differs from {escaped(baseline)}."
    lines = [f"Different from {escaped(baseline)}:", "", _row(_HEAD), "| --- | --- | --- | ---: |"]
    return "\n".join([*lines, *(_row(map(escaped, _cells(change))) for change in changes)])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """Return a text that Markdown and HTML show as it is: no link, no mention, no tag, no cell."""
    return _IN_MARKDOWN.sub(
        lambda match: f"{match[1]}{_APART}" if match[1] else f"&#{ord(match[2])};", one_line(text)
    )
