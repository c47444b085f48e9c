"""What a report is made of, as values: each door decides how they look, none reads them out of text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Emphasis = Callable[[str], str]
"""How a terminal shows text in bold, or the identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the totals: what it is of, the amount, and what more there is to say."""

    label: str
    amount: str
    """With its unit; "" where the rest says it all."""
    rest: str

    @property
    def text(self) -> str:
        """Return the line without its label."""
        return f"{self.amount} {self.rest}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """The head of a column."""

    name: str
    is_number: bool = False
    is_key: bool = False
    """Whether a row is known by what stands here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """One row of a table, a cell for each heading."""

    cells: tuple[str, ...]
    is_chosen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """Rows under headings, under a title."""

    title: str
    note: str = ""
    """What to know before reading it; stands beside the title."""
    headings: tuple[Heading, ...]
    rows: tuple[ReportRow, ...]
    has_choice: bool = False
    """Whether one of the rows is what was chosen, and is marked."""


def figures_text(figures: tuple[Figure, ...], label_width: int = 8) -> str:
    """Return one line per figure, the amounts under each other."""
    return "\n".join(f"{figure.label:<{label_width}}{figure.text}" for figure in figures)


def table_text(report_table: ReportTable, bold: Emphasis) -> str:
    """Return a table under its title; the chosen row after a mark."""
    names = tuple(heading.name for heading in report_table.headings)
    rows = [names, *(row.cells for row in report_table.rows)]
    if report_table.has_choice:
        marks = ["", *("*" if row.is_chosen else "" for row in report_table.rows)]
        rows = [(mark, *cells) for mark, cells in zip(marks, rows, strict=True)]
    note = f" ({report_table.note})" if report_table.note else ""
    return f"{bold(report_table.title)}{note}\n{columns_text(rows)}"


def columns_text(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as aligned columns, two spaces apart."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(f"  {line}" for line in lines)
