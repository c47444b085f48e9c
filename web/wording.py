"""What the planner says of flags -> the same of the form's labels."""

import re
from collections.abc import Mapping
from functools import cache

from markupsafe import Markup, escape

from planner.core.errors import Problem
from planner.report.flags import flags
from web.controls import labels
from web.form import control_of

_FLAG = re.compile(
    r"--(?P<no>no-)?(?P<name>[a-z][a-z0-9-]{0,40}[a-z0-9])(?: (?P<value>[\w.+:-]{1,40}))?"
)
_LISTED = re.compile(r"`planner (gpus|instances|links|models)`")
"""Commands that print what a page of that name shows."""
_LINK = Markup('<a href="/{page}">/{page}</a>')
_CODE = re.compile(r"`([^`]{1,200})`")
_AS_CODE = Markup("<code>{text}</code>")
_DETAIL = re.compile(r", [^;]+|(?<=.) \(.+\)")
"""Of a layout's cell: a second figure, or what is said of a size."""
_ONLY_WIDE = Markup('<span class="only-wide">{detail}</span>')
_PLACEHOLDER = re.compile(r"[A-Z]+")
_NO_VALUES = frozenset(
    {
        "and",
        "at",
        "for",
        "has",
        "in",
        "is",
        "of",
        "or",
        "out",
        "says",
        "takes",
        "to",
        "with",
        "would",
    }
)
"""Words that follow a flag in a sentence."""
_WHERE = re.compile(r"; planner accuracy --source \w+ lists those runs")
"""A terminal's way to the runs that a page links beside the sentence."""
_EPOCHS = " and --epochs"
"""A terminal multiplies samples by them; the form asks for all samples of the run."""


def in_labels(text: str) -> str:
    """Return a sentence with the labels of the form in place of a terminal's flags."""
    return (
        _FLAG.sub(_in_labels, _WHERE.sub("", text.replace(_EPOCHS, ""))) if "--" in text else text
    )


def in_links(text: str) -> Markup:
    """Return the same with a page in place of a command that lists what there is."""
    # What is split at has one group: names of pages stand between the texts.
    parts = enumerate(_LISTED.split(in_labels(text)))
    return Markup().join(_LINK.format(page=part) if at % 2 else coded(part) for at, part in parts)


def coded(text: str) -> Markup:
    """Return a sentence in which what stands between backticks is set as code."""
    parts = enumerate(_CODE.split(text))
    return Markup().join(
        _AS_CODE.format(text=part) if at % 2 else escape(part) for at, part in parts
    )


def with_detail(cell: str) -> Markup:
    """Return a cell of a layout's row in which a narrow screen leaves out what follows the first figure."""
    found = _DETAIL.search(cell)
    if found is None:
        return escape(cell)
    start, end = found.span()
    return escape(cell[:start]) + _ONLY_WIDE.format(detail=found[0]) + escape(cell[end:])


def without_field(problem: Problem) -> str:
    """Return what is wrong without the name of the field, for a place that shows its label.

    What is wrong inside a pasted file keeps its place in that file.
    """
    message = in_labels(problem.message.removeprefix(f"{problem.field}: "))
    place = problem.field.partition(f"{control_of(problem.field)}.")[2]
    return f"{place}: {message}" if problem.field.startswith("machine.") else message


def _in_labels(found: re.Match[str]) -> str:
    no, name, value = found["no"] or "", found["name"], found["value"]
    label = _by_flag().get(name)
    if label is None:
        return f"the terminal's {found[0]}"
    if value is None:
        return f"{'no ' if no else ''}\u201c{label}\u201d"
    if _PLACEHOLDER.fullmatch(value):
        return f"\u201c{label}\u201d"
    word = value.rstrip(".:")
    if word in _NO_VALUES or no:
        return f"{'no ' if no else ''}\u201c{label}\u201d {value}"
    return f"{label}: {value}"


@cache
def _by_flag() -> Mapping[str, str]:
    return {
        flag.removeprefix("--").partition(" ")[0]: labels()[control_of(field)]
        for field, flag in flags().items()
        if flag.startswith("--") and "," not in flag and control_of(field) in labels()
    }
