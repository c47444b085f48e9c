"""The arithmetic of batches as a page: micro-batch x accumulation x data parallel, steps, learning rate."""

from collections.abc import Mapping

from planner.advice.batch_plan import BatchWish, batch_plan
from planner.report.batch_plan_text import batch_figures, batch_headline, batch_ways
from web.control import number
from web.sheet import SheetTable, facts
from web.sheet import number as number_cell
from web.tool import Item, Number, Told, Tool, ToolForm

_COUNT = Number(lowest=1, highest=2**24)

BATCH = Tool(
    path="/batch",
    title="How a batch is made",
    lead="Two of global batch, micro-batch and accumulation give the third; the global batch alone lists"
    " every way.",
    forms=(
        ToolForm(
            legend="Batch",
            button="Work it out",
            controls=(
                number("gpus", "GPUs", "1", "that are data parallel"),
                number("global_batch_size", "Global batch size", "open", "samples of a step"),
                number("micro_batch_size", "Micro-batch size", "open", "samples per GPU and pass"),
                number("accumulation_steps", "Accumulation steps", "open", "passes of a step"),
                number("samples", "Samples", "not said", "of the data set"),
                number("epochs", "Epochs", "1"),
                number("max_steps", "max_steps", "not set", "as Trainer has it"),
                number("warmup_fraction", "Warm-up", "0.03", "share of the steps"),
                number("learning_rate", "Learning rate", "not said", "that was tuned"),
                number("from_batch", "Tuned at a batch of", "one GPU's", "samples of a step"),
            ),
        ),
    ),
    numbers={
        **dict.fromkeys(
            ("gpus", "global_batch_size", "micro_batch_size", "accumulation_steps", "from_batch"),
            _COUNT,
        ),
        "samples": Number(lowest=1, highest=10**15),
        "max_steps": Number(lowest=1, highest=10**12),
        "epochs": Number(lowest=1e-6, highest=10**6, is_whole=False),
        "warmup_fraction": Number(lowest=0, highest=1, is_whole=False),
        "learning_rate": Number(lowest=1e-12, highest=1000, is_whole=False),
    },
)


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
