"""Plan -> text for a terminal. The recommendation first, then what it rests on."""

from collections.abc import Sequence
from textwrap import fill

from planner.advice.alternatives import Point, Rejected
from planner.advice.plan import Plan
from planner.core.units import format_bytes, format_duration, format_seconds
from planner.domain.dimensions import DIMENSIONS
from planner.domain.strategy import Layout
from planner.hardware.placement import RankGrid, rank_grid
from planner.memory.phases import PHASES
from planner.report.text import (
    WIDTH,
    Emphasis,
    assumptions_text,
    ledger,
    recommendation,
    table,
    totals,
)
from planner.report.timeline import timeline, timeline_text
from planner.request.cluster import Assumption
from planner.search.candidate import Candidate

_BESIDE_TIMELINE = 12
"""Characters before a stage's row."""
MOST_ROWS = 8
"""Of a table."""


def plan_text(plan: Plan, assumptions: Sequence[Assumption], command: str, bold: Emphasis) -> str:
    """Return the whole report.

    Args:
        plan: what to show.
        assumptions: what the request left open, shown first.
        command: the command line that asked, to which `--out` can be added; "" where it has one.
        bold: how the terminal emphasises, or the identity.
    """
    chosen = plan.chosen
    sections = [
        assumptions_text(assumptions),
        bold(recommendation(plan.job, chosen)) + "\n" + totals(plan.job, chosen) + _doubt(plan),
        ledger(
            f"Memory of one GPU at its peak ({PHASES[chosen.memory.phase]})",
            chosen.memory.terms,
            format_bytes,
            bold,
        ),
        ledger("Time of one optimizer step", chosen.step_time.terms, format_seconds, bold),
        _why(plan, bold),
        _options(plan, bold),
        _ranks_of(plan, bold),
        _pipeline(plan, bold),
        _alternatives(plan, bold),
        _trade_offs(plan, bold),
        _rejected(plan, bold),
        _searched(plan),
        _how_to_run(command, bold) if command else "",
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _doubt(plan: Plan) -> str:
    return f"\nTrust   {plan.confidence.level}: {plan.confidence.reason}"


def _why(plan: Plan, bold: Emphasis) -> str:
    lines = [_paragraph(f"{finding.code}  {finding.message}") for finding in plan.findings]
    return "\n".join((bold("Why") + " (planner explain CODE says more)", *lines))


def _paragraph(text: str) -> str:
    return fill(
        text,
        WIDTH,
        initial_indent="  ",
        subsequent_indent=" " * 10,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _alternatives(plan: Plan, bold: Emphasis) -> str:
    """Return the ranked table: the choice with a tick, then the best of each other family."""
    header = ("", "strategy", "sizes", "micro-batch", "recompute", "memory", "step", "compared")
    shown = plan.alternatives[:MOST_ROWS]
    rows = [("*", plan.chosen, "chosen")]
    rows += [("", other.candidate, other.reason) for other in shown]
    cells = [(mark, *layout_cells(row), reason) for mark, row, reason in rows]
    left = len(plan.alternatives) - len(shown)
    more = f"\n{_left(left)}" if left else ""
    return bold("Alternatives") + "\n" + table((header, *cells)) + more


def _left(count: int) -> str:
    return f"  and {count} more {'family' if count == 1 else 'families'} (--json lists them)"


def layout_cells(candidate: Candidate) -> tuple[str, ...]:
    """Return a layout's family, sizes, micro-batches, recompute, memory and step as text."""
    s = candidate.strategy
    return (
        s.family,
        sizes(s),
        f"{s.micro_batch_size} x {s.gradient_accumulation_steps}",
        str(s.recompute),
        format_bytes(candidate.memory.reserved_bytes),
        format_seconds(candidate.step_time.step_seconds),
    )


def sizes(s: Layout) -> str:
    """Return the sizes above 1 in short, such as `dp 4 tp 8 pp 2 (1f1b)`; HSDP as replicas x shards."""
    data = (
        f"{s.data_parallel_replicate_size}x{s.data_parallel_shard_size}"
        if s.is_hybrid
        else str(s.data_parallel_size)
    )
    named = [f"dp {data}"] if s.data_parallel_size > 1 else []
    named += [f"{each.short_name} {s.size(each)}" for each in DIMENSIONS if s.uses(each)]
    if s.pipeline_parallel_size > 1:
        chunks = f" x{s.virtual_pipeline_size}" if s.virtual_pipeline_size > 1 else ""
        named.append(f"({s.pipeline_schedule}{chunks})")
    return " ".join(named) or "-"


def _trade_offs(plan: Plan, bold: Emphasis) -> str:
    """Return the Pareto front: what is faster, smaller, or on fewer GPUs."""
    header = ("GPUs", "strategy", "sizes", "micro-batch", "recompute", "memory", "step")
    rows = [(str(point.gpus), *layout_cells(point.candidate)) for point in shown_points(plan)]
    if len(rows) == 1:
        return ""
    title = bold("Trade-offs") + " (none is both faster and smaller on as many GPUs)"
    return title + "\n" + table((header, *rows))


def _options(plan: Plan, bold: Emphasis) -> str:
    """Return what other numbers of GPUs would take."""
    if not plan.options:
        return ""
    header = ("", "GPUs", "step", "GPU time", "run", "price", "in time")
    return bold("Numbers of GPUs") + "\n" + table((header, *option_rows(plan)))


def option_rows(plan: Plan) -> list[tuple[str, ...]]:
    """Return what each number of GPUs would take as text, after a mark at the chosen one."""
    return [
        (
            "*" if option.gpus == plan.job.cluster.world_size else "",
            f"{option.gpus:,}",
            format_seconds(option.step_seconds),
            format_seconds(option.gpu_seconds_per_step),
            format_duration(option.run_seconds) if option.run_seconds else "",
            f"${option.usd:,.2f}" if option.usd else "",
            "yes" if option.is_in_time else "no",
        )
        for option in plan.options
    ]


def shown_points(plan: Plan) -> tuple[Point, ...]:
    """Return the fastest points of the front and its last two, the smallest or on fewer GPUs."""
    points = plan.pareto
    return points if len(points) <= MOST_ROWS else (*points[: MOST_ROWS - 2], *points[-2:])


def shown_rejected(plan: Plan) -> tuple[Rejected, ...]:
    """Return the families that nearly fit, and those that break a limit."""
    too_large = [row for row in plan.rejected if row.findings[0].code == "MEM001"]
    others = [row for row in plan.rejected if row.findings[0].code != "MEM001"]
    return (*too_large[: MOST_ROWS // 2], *others)


def _ranks_of(plan: Plan, bold: Emphasis) -> str:
    """Return which GPUs stand where: a picture, or the strides of each kind of group."""
    grid = plan_grid(plan)
    if plan.chosen.strategy.data_parallel_size == plan.job.cluster.world_size:
        return ""
    picture = grid.picture()
    if picture:
        body = "\n".join(f"  {line}" for line in picture.splitlines())
    else:
        body = table([(kind, text) for kind, text in grid.strides().items()])
    return bold("Ranks") + "\n" + body


def _pipeline(plan: Plan, bold: Emphasis) -> str:
    """Return who works when, of a pipeline that is not too long to show."""
    s = plan.chosen.strategy
    found = timeline(plan.job, s)
    if found is None:
        return ""
    shown = 1 + max(span.operation.micro_batch for span in found.spans)
    title = bold("Pipeline") + f" ({s.pipeline_schedule}, the first {shown} micro-batches)"
    legend = "  digits: forward, letters: backward, -: weight gradients put off, dots: idle"
    return "\n".join((title, timeline_text(found, WIDTH - _BESIDE_TIMELINE), legend))


def plan_grid(plan: Plan) -> RankGrid:
    """Return the map of the plan's ranks."""
    s, cluster = plan.chosen.strategy, plan.job.cluster
    return rank_grid(
        {
            "tensor": s.tensor_parallel_size,
            "context": s.context_parallel_size,
            "expert": s.expert_parallel_size,
            "data": s.data_parallel_size,
            "pipeline": s.pipeline_parallel_size,
        },
        gpus_per_node=cluster.gpus_per_node,
        nodes=cluster.nodes,
        gpu_order=cluster.gpu_order,
    )


def _rejected(plan: Plan, bold: Emphasis) -> str:
    if not plan.rejected:
        return ""
    shown = shown_rejected(plan)
    lines = [
        _paragraph(f"{row.family}  {row.findings[0].code}  {row.findings[0].message}")
        for row in shown
    ]
    left = len(plan.rejected) - len(shown)
    more = _left(left) if left else ""
    return "\n".join(
        line for line in (bold("Rejected") + " (--why tp=16 asks for one)", *lines, more) if line
    )


def _searched(plan: Plan) -> str:
    found = plan.search
    return f"Searched {found.strategies:,} layouts, every legal one; {found.feasible:,} fit."


def _how_to_run(command: str, bold: Emphasis) -> str:
    return f"{bold('Run it')}\n  {command} --out DIR    writes launch files, a training script and a README"
