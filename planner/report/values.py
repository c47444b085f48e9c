"""What a report is made of, as values: each door decides how they look, none reads them out of text."""

import re
from collections.abc import Callable, Sequence
from itertools import zip_longest
from textwrap import fill

from planner.core.frozen import frozen

Emphasis = Callable[[str], str]
"""How a terminal shows text in bold, or the identity."""
Tint = Callable[[str, str], str]
"""How a terminal colours text by a verdict of `layout_words.Verdict`, or what leaves it as it is."""


def plain(text: str, _tone: str) -> str:
    """Return a text without colour."""
    return text


WIDTH = 100
"""Of a text where no terminal says how wide it is, in characters."""
_PIECE = re.compile(r" *[^ +-]*[+-]| *[^ +-]+")
_UNBROKEN = "\N{NO-BREAK SPACE}"
_LEAST_ROOM = 20
"""Characters that a paragraph keeps beside its indent."""
NARROWEST = 40
"""What every text can be folded to; a narrower terminal folds it itself."""


@frozen
class Terminal:
    """What a text is shown on."""

    width: int = WIDTH
    """In characters."""
    bold: Emphasis = str
    tint: Tint = plain

    def paragraph(self, text: str, *, first: str = "", rest: str = "") -> str:
        """Return a text folded to the width, no percentage torn apart.

        Args:
            text: words.
            first: what stands before the first line.
            rest: what stands before every other line.
        """
        folded = fill(
            first + text.replace(" %", f"{_UNBROKEN}%"),
            max(self.width, len(rest) + _LEAST_ROOM),
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        )
        return folded.replace(_UNBROKEN, " ")


@frozen
class Figure:
    """One line of the totals: what it is of, the amount, and what more there is to say."""

    label: str
    amount: str
    """With its unit; "" where the rest says it all."""
    rest: str
    tone: str = ""
    """A verdict, in whose colour the label is shown."""

    @property
    def text(self) -> str:
        """Return the line without its label."""
        return f"{self.amount} {self.rest}".strip()


@frozen
class Heading:
    """The head of a column."""

    name: str
    is_number: bool = False
    is_key: bool = False
    """Whether a row is known by what stands here."""
    is_detail: bool = False
    """Whether the column is left out where the table is too wide for the terminal."""


@frozen
class ReportRow:
    """One row of a table, a cell for each heading."""

    cells: tuple[str, ...]
    is_chosen: bool = False


@frozen
class ReportTable:
    """Rows under headings, under a title."""

    title: str
    note: str = ""
    """What to know before reading it; stands beside the title."""
    headings: tuple[Heading, ...]
    rows: tuple[ReportRow, ...]
    has_choice: bool = False
    """Whether one of the rows is what was chosen, and is marked."""


def figures_text(
    figures: tuple[Figure, ...], terminal: Terminal, label_width: int = 8, indent: str = ""
) -> str:
    """Return a paragraph per figure, the amounts under each other."""
    return "\n".join(_figure_text(each, terminal, label_width, indent) for each in figures)


def _figure_text(figure: Figure, terminal: Terminal, label_width: int, indent: str) -> str:
    """Return a figure folded, then its label shown: what colours has no width."""
    label = figure.label
    text = terminal.paragraph(
        figure.text,
        first=f"{indent}{label:<{label_width}}",
        rest=" " * (len(indent) + label_width),
    )
    shown = terminal.tint(label, figure.tone) if figure.tone else terminal.bold(label)
    return text.replace(label, shown, 1) if label else text


def table_text(report_table: ReportTable, terminal: Terminal) -> str:
    """Return a table under its title; the chosen row after a mark."""
    columns = range(len(report_table.headings))
    body = columns_text(_rows(report_table, columns))
    if max(map(len, body.splitlines())) > terminal.width:
        kept = [column for column in columns if not report_table.headings[column].is_detail]
        body = columns_text(_rows(report_table, kept), terminal.width)
    note = f" ({report_table.note})" if report_table.note else ""
    return f"{terminal.bold(report_table.title)}{note}\n{body}"


def _rows(report_table: ReportTable, columns: Sequence[int]) -> list[tuple[str, ...]]:
    """Return the head and the rows of a table, the chosen row after a mark; numbers stay whole."""
    headings = report_table.headings
    rows = [tuple(headings[column].name for column in columns)]
    for row in report_table.rows:
        cells = ((row.cells[column], headings[column].is_number) for column in columns)
        rows.append(tuple(cell.replace(" ", _UNBROKEN) if whole else cell for cell, whole in cells))
    if not report_table.has_choice:
        return rows
    marks = ["", *("*" if row.is_chosen else "" for row in report_table.rows)]
    return [(mark, *cells) for mark, cells in zip(marks, rows, strict=True)]


def columns_text(rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Return rows as aligned columns, two spaces apart.

    Args:
        rows: cells, as many in each.
        width: what the columns have together, in characters: the widest are folded between words
            until all fit; None for as much as they take.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    if width is not None:
        widths = _folded(rows, widths, width)
    lines = (
        "  ".join(cell.ljust(size) for cell, size in zip(cells, widths, strict=True)).rstrip()
        for row in rows
        for cells in zip_longest(*map(_lines, row, widths), fillvalue="")
    )
    return "\n".join(f"  {line}".replace(_UNBROKEN, " ") for line in lines)


def _lines(cell: str, width: int) -> list[str]:
    lines = [""]
    for piece in _PIECE.findall(cell):
        if lines[-1] and len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece if lines[-1] else piece.lstrip()
    return [line.rstrip() for line in lines]


def _folded(rows: Sequence[Sequence[str]], widths: list[int], width: int) -> list[int]:
    """Return the columns' widths, the widest made narrower as long as it can be and must."""
    narrowest = [
        max(len(piece) for row in rows for piece in _lines(row[column], 1))
        for column in range(len(widths))
    ]
    found = list(widths)
    while sum(found) + 2 * len(found) > width:
        open_columns = [column for column in range(len(found)) if found[column] > narrowest[column]]
        if not open_columns:
            break
        found[max(open_columns, key=found.__getitem__)] -= 1
    return found
