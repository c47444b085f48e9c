"""A paste -> its lines, without what terminals, editors and issue forms leave in them."""

import re

from planner.core.frozen import frozen

_ESCAPES = re.compile(
    r"(?:\x1b|\^\[|\\e|\\033|\\x1b|\\u001b)\[[0-9;?]*[A-Za-z]"  # as bytes, or as tools spell ESC
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # window titles
    r"|\x1b[ -/]?[0-Z\\-_=>]"
    r"|\[[0-9;]{1,11}m|\[0?K(?![A-Za-z])"  # colours whose ESC was lost on the way
)
_MARGIN = re.compile(r"[ ]*(?:(?:[>#*;`]|//|[0-9]{1,4}:)[ ]?)+")
"""Marks of quotes, comments, code and `srun --label` at the start of a line."""

_CHARACTERS = (
    dict.fromkeys([*range(32), *range(127, 160), *range(0x200B, 0x2010), 0x2060, 0xFEFF])
    | {ord(end): "\n" for end in "\n\u0085\u2028\u2029"}
    | {ord("\t"): "\t", ord("\r"): "\r"}
    | {ord(space): " " for space in "\u00a0\u2007\u202f\u3000|\u2502\u2503"}
)
"""Control characters vanish; wide spaces and the bars of tables become spaces."""


@frozen
class Line:
    """One line of a paste and its words."""

    number: int
    """From 1, as an editor counts."""
    text: str
    tokens: tuple[str, ...]


def clean(text: str) -> tuple[Line, ...]:
    """Return the lines that hold anything; columns stay where they are."""
    plain = _ESCAPES.sub("", text).translate(_CHARACTERS)
    lines = []
    for number, raw in enumerate(plain.splitlines(), start=1):
        line = _MARGIN.sub(_blank, raw, count=1) if _MARGIN.match(raw) else raw
        tokens = tuple(line.split())
        if tokens:
            lines.append(Line(number=number, text=line, tokens=tokens))
    return tuple(lines)


def _blank(mark: re.Match[str]) -> str:
    return " " * len(mark[0])
