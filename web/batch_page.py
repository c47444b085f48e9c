"""The arithmetic of batches as a page: micro-batch x accumulation x data parallel, steps, learning rate."""

from collections.abc import Mapping

from planner.advice.batch_plan import BatchWish, batch_plan
from planner.report.batch_plan_text import batch_figures, batch_headline, batch_ways
from web.sheet import SheetTable, facts
from web.sheet import number as number_cell
from web.tool import Item, Told, read_tool

BATCH = read_tool("batch")


def worked_out(values: Mapping[str, str]) -> Told | None:
    """Return what follows from a batch; None of nothing said.

    Raises:
        PlannerError: it does not divide, or too little is said.
    """
    if not values:
        return None
    numbers = BATCH.read_numbers(values)
    whole = {name for name, kind in BATCH.numbers.items() if kind.is_whole} - {"gpus"}
    counts = {name: int(numbers[name]) for name in whole & numbers.keys()}
    plan = batch_plan(
        BatchWish(
            ranks=int(numbers.get("gpus", 1)),
            epochs=numbers.get("epochs", 1.0),
            warmup_fraction=numbers.get("warmup_fraction"),
            learning_rate=numbers.get("learning_rate"),
            **counts,
        )
    )
    ways = batch_ways(plan)
    table = SheetTable(
        title=ways.title,
        headings=tuple(heading.name for heading in ways.headings),
        rows=tuple(tuple(map(number_cell, row.cells)) for row in ways.rows),
        note=f"{ways.note[:1].upper()}{ways.note[1:]}.",
    )
    figures = [(each.label, f"{each.amount} {each.rest}".strip()) for each in batch_figures(plan)]
    return Told(
        title=batch_headline(plan),
        facts=facts(figures),
        items=tuple(Item(text=text, level="warning") for text in plan.warnings),
        notes=() if plan.settings else ("Name the micro-batch size to see what to configure.",),
        tables=(table,) if len(plan.splits) > 1 else (),
        blocks=tuple((name, "\n".join(lines)) for name, lines in plan.settings.items()),
    )
