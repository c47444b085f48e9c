"""A race that was run elsewhere, as a page: who won, and what each plan showed."""

from collections.abc import Mapping

from planner.race.results import posted_table
from planner.request.raced import read_race
from web.sheet import Cell, SheetTable
from web.tool import Told, read_tool

RACE = read_tool("race")
_FIELD = "race"


def raced(values: Mapping[str, str]) -> Told | None:
    """Return the table of the race that was pasted; None of nothing.

    Raises:
        PlannerError: it is none.
    """
    if not values:
        return None
    table = posted_table(read_race(values[_FIELD], _FIELD).model_dump())
    rows = [
        tuple(
            Cell(text=text, is_number=heading.is_number)
            for heading, text in zip(table.headings, row.cells, strict=True)
        )
        for row in table.rows
    ]
    headings = tuple(heading.name for heading in table.headings)
    return Told(
        title=table.title, tables=(SheetTable(title="", headings=headings, rows=tuple(rows)),)
    )
