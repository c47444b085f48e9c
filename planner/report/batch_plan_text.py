"""A batch and what follows from it -> text for a terminal."""

from planner.advice.batch_arithmetic import BatchSplit, RunSteps
from planner.advice.batch_plan import BatchPlan
from planner.core.units import format_fraction, format_steps
from planner.report.values import (
    Figure,
    Heading,
    ReportRow,
    ReportTable,
    Terminal,
    figures_text,
    table_text,
)


def batch_text(plan: BatchPlan, terminal: Terminal) -> str:
    """Return the four numbers first, then steps and rate, what to set, what to fear."""
    head = (terminal.bold(batch_headline(plan)), figures_text(batch_figures(plan), terminal, 15))
    parts = [
        "\n".join(part for part in head if part),
        table_text(batch_ways(plan), terminal) if len(plan.splits) > 1 else "",
        _warnings(plan, terminal),
        _settings(plan, terminal),
    ]
    if len(plan.splits) > 1:
        hint = (
            "add --micro-batch-size to see what to configure; `planner memory MODEL --gpus N` says"
        )
        parts.append(terminal.paragraph(f"{hint} how many samples fit on a GPU"))
    return "\n\n".join(part for part in parts if part)


def batch_headline(plan: BatchPlan) -> str:
    """Return the product that makes the batch, or how many ways there are."""
    first = plan.splits[0]
    if len(plan.splits) == 1:
        return _product(first)
    return (
        f"{_samples(first.global_batch_size)} per step on {first.data_parallel_size:,}"
        f" rank{'s'[: first.data_parallel_size > 1]}: {len(plan.splits)} ways"
    )


def _product(split: BatchSplit) -> str:
    return (
        f"{split.micro_batch_size:,} per GPU x {split.gradient_accumulation_steps:,} accumulation x"
        f" {split.data_parallel_size:,} data parallel = {_samples(split.global_batch_size)} per step"
    )


def batch_figures(plan: BatchPlan) -> tuple[Figure, ...]:
    """Return steps, warm-up, learning rate and schedule, as far as they are known."""
    found = [_steps(plan.run, plan.splits[0])] if plan.run else []
    if plan.run and plan.warmup_steps is not None:
        share = plan.warmup_steps / max(1, plan.run.steps)
        amount, unit = format_steps(plan.warmup_steps).split()
        rest = f"{unit}, {format_fraction(share)} of the run"
        found.append(Figure(label="Warm-up", amount=amount, rest=rest))
    if plan.tuned:
        rates = " or ".join(f"{rate.learning_rate:.2g} ({rate.rule})" for rate in plan.rates)
        rest = (
            f"{rates}, from {plan.tuned.learning_rate:.2g} at {_samples(plan.tuned.batch)}"
            f" ({plan.tuned.source}); rules of thumb: try them"
        )
        if plan.tuned.batch == plan.splits[0].global_batch_size:
            rest = f"{plan.tuned.learning_rate:.2g}, as tuned at this batch ({plan.tuned.source})"
        found.append(Figure(label="Learning rate", amount="", rest=rest))
    if plan.scheduler_end and plan.run:
        rest = (
            f"accelerate steps a prepared schedule {plan.splits[0].data_parallel_size} times per call: one"
            f" of {format_steps(plan.run.steps)} would end at step {plan.scheduler_end:,}"
        )
        found.append(Figure(label="Schedule", amount="", rest=rest))
    return tuple(found)


def _steps(run: RunSteps, split: BatchSplit) -> Figure:
    amount, unit = format_steps(run.steps).split()
    rest = f"optimizer {unit}: {run.steps_per_epoch:,} per epoch of {_samples(run.samples)} x {run.epochs:g}"
    if run.last_step_samples != split.global_batch_size:
        rest += f"; the last of an epoch has {run.last_step_samples:,}"
    if run.padded_samples:
        rest += f"; {run.padded_samples:,} seen twice, so that ranks have as many"
    return Figure(label="Steps", amount=amount, rest=rest)


def _samples(count: int) -> str:
    return f"{count:,} sample{'' if count == 1 else 's'}"


def batch_ways(plan: BatchPlan) -> ReportTable:
    """Return every way to make the batch."""
    names = ("per GPU", "accumulation", "data parallel")
    return ReportTable(
        title="Ways",
        note="the larger per GPU the faster, as far as memory goes",
        headings=tuple(Heading(name=name, is_number=True) for name in names),
        rows=tuple(
            ReportRow(
                cells=(
                    f"{way.micro_batch_size:,}",
                    f"{way.gradient_accumulation_steps:,}",
                    f"{way.data_parallel_size:,}",
                )
            )
            for way in plan.splits
        ),
    )


def _warnings(plan: BatchPlan, terminal: Terminal) -> str:
    if not plan.warnings:
        return ""
    lines = (terminal.paragraph(text, first="  ", rest="  ") for text in plan.warnings)
    return "\n".join((terminal.bold("Careful"), *lines))


def _settings(plan: BatchPlan, terminal: Terminal) -> str:
    if not plan.settings:
        return ""
    lines = [
        terminal.paragraph(line, first=f"  {name if first else '':<14}", rest=" " * 16)
        for name, found in plan.settings.items()
        for first, line in ((line == found[0], line) for line in found)
    ]
    return "\n".join((terminal.bold("Configure"), *lines))
