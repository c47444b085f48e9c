"""Plan -> text for a terminal. The recommendation first, then what it rests on."""

from collections.abc import Callable, Mapping, Sequence

from planner.advice.alternatives import ParetoPoint, Rejected
from planner.advice.plan import ClusterOption, Plan
from planner.advice.rules.base import Finding
from planner.core.units import (
    format_bytes,
    format_duration,
    format_seconds,
    format_sum,
)
from planner.hardware.placement import RankGrid, rank_grid
from planner.report.answer import answer_text, others_text
from planner.report.layout_words import (
    assumptions_text,
    ledgers_text,
    recompute_text,
    sizes_text,
)
from planner.report.rollout import rollout_ledger
from planner.report.timeline import timeline, timeline_text
from planner.report.values import (
    WIDTH,
    Heading,
    ReportRow,
    ReportTable,
    Terminal,
    columns_text,
    table_text,
)
from planner.request.remarks import Assumption
from planner.search.candidate import Candidate

_BESIDE_TIMELINE = 12
"""Characters before a stage's row."""
_TOO_LARGE = ("MEM001", "MEM004")
"""What is said of a layout that the GPUs, or their host, cannot hold."""
_ALONE = "training alone"
"""What memory and step of a layout are of, where GRPO's has other phases."""
MOST_ROWS = 8
"""Of a table."""


def plan_text(
    plan: Plan, assumptions: Sequence[Assumption], command: str, terminal: Terminal
) -> str:
    """Return the whole report.

    Args:
        plan: what to show.
        assumptions: what the request left open.
        command: the command line that asked, to which `--out` can be added; "" where it has one.
        terminal: what it is shown on.
    """
    sections = [
        answer_text(plan, command, terminal),
        findings_text(plan.findings, terminal),
        others_text(plan, terminal),
        assumptions_text(assumptions, terminal),
        rollout_ledger(plan.rollout, terminal) if plan.rollout else "",
        *(
            ledgers_text(plan.chosen, terminal, "Time of one optimizer step, training alone")
            if plan.rollout
            else ledgers_text(plan.chosen, terminal)
        ),
        table_text(options, terminal) if (options := options_table(plan)) else "",
        _ranks_of(plan, terminal),
        _pipeline(plan, terminal),
        _alternatives(plan, terminal),
        table_text(points, terminal) if (points := trade_offs_table(plan)) else "",
        _rejected(plan, terminal),
        _searched(plan),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def findings_text(findings: Sequence[Finding], terminal: Terminal) -> str:
    """Return every finding after its code."""
    lines = (_coded(f"{finding.code}  {finding.message}", terminal) for finding in findings)
    return "\n".join((terminal.bold("Why") + " (planner explain CODE says more)", *lines))


def _coded(text: str, terminal: Terminal) -> str:
    return terminal.paragraph(text, first="  ", rest=" " * 10)


def _alternatives(plan: Plan, terminal: Terminal) -> str:
    left = len(plan.alternatives) - len(plan.alternatives[:MOST_ROWS])
    table = table_text(alternatives_table(plan), terminal)
    more = [_left_out(left)] if left else []
    notes = (_coded(f"no files  {reason}", terminal) for reason in reasons_without_files(plan))
    return "\n".join((table, *more, *notes))


def reasons_without_files(plan: Plan) -> tuple[str, ...]:
    """Return why shown alternatives cannot be written: what the framework's first target says."""
    reasons = (next(iter(each.unwritten.values()), "") for each in plan.alternatives[:MOST_ROWS])
    return tuple(dict.fromkeys(reason for reason in reasons if reason))


def alternatives_table(plan: Plan) -> ReportTable:
    """Return the choice, then the best of each other family."""
    alternatives = plan.alternatives[:MOST_ROWS]
    chosen = ReportRow(cells=(*_layout_cells(plan.chosen), "chosen"), is_chosen=True)
    rows = (
        ReportRow(cells=(*_layout_cells(alternative.candidate), alternative.reason))
        for alternative in alternatives
    )
    return ReportTable(
        title="Alternatives",
        note=_ALONE if plan.rollout else "",
        headings=(*_OF_LAYOUTS, Heading(name="compared")),
        rows=(chosen, *rows),
        has_choice=True,
    )


def _left_out(count: int) -> str:
    return f"  and {count} more {'family' if count == 1 else 'families'} (--json lists them)"


_OF_LAYOUTS = (
    Heading(name="strategy", is_key=True),
    Heading(name="sizes"),
    Heading(name="micro-batch", is_detail=True),
    Heading(name="recompute", is_detail=True),
    Heading(name="memory", is_number=True),
    Heading(name="step", is_number=True),
)


def _layout_cells(candidate: Candidate) -> tuple[str, ...]:
    s = candidate.strategy
    return (
        s.family,
        sizes_text(s),
        f"{s.micro_batch_size} x {s.gradient_accumulation_steps}",
        recompute_text(s),
        format_bytes(candidate.memory.reserved_bytes),
        format_seconds(candidate.step_time.step_seconds),
    )


def trade_offs_table(plan: Plan) -> ReportTable | None:
    """Return the Pareto front: what is faster, smaller, or on fewer GPUs; None for a single point."""
    if len(plan.pareto) == 1:
        return None
    return ReportTable(
        title="Trade-offs",
        note=f"{f'{_ALONE}; ' if plan.rollout else ''}none is both faster and smaller on as many GPUs",
        headings=(Heading(name="GPUs", is_number=True), *_OF_LAYOUTS),
        rows=tuple(
            ReportRow(cells=(str(point.gpus), *_layout_cells(point.candidate)))
            for point in shown_points(plan)
        ),
    )


def options_table(plan: Plan) -> ReportTable | None:
    """Return what other numbers of GPUs would take; None where their number was not open."""
    if not plan.options:
        return None
    columns = {name: [cell(each) for each in plan.options] for name, cell in _OPTION_CELLS.items()}
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    dates = {option.price_date for option in plan.options} - {""}
    return ReportTable(
        title="Numbers of GPUs",
        note=f"prices: {', '.join(sorted(dates))}" if dates else "no price is known",
        headings=tuple(
            Heading(name=name, is_number=name != "in time", is_key=name == "GPUs") for name in shown
        ),
        rows=tuple(
            ReportRow(cells=cells, is_chosen=option.gpus == plan.job.cluster.world_size)
            for option, cells in zip(plan.options, zip(*shown.values(), strict=True), strict=True)
        ),
        has_choice=True,
    )


_IN_TIME = {True: "yes", False: "no", None: ""}
_OPTION_CELLS: Mapping[str, Callable[[ClusterOption], str]] = {
    "GPUs": lambda option: f"{option.gpus:,}",
    "step": lambda option: format_seconds(option.step_seconds),
    "GPU time": lambda option: format_seconds(option.gpu_seconds_per_step),
    "run": lambda option: format_duration(option.run_seconds) if option.run_seconds else "",
    "price": lambda option: f"${format_sum(option.usd)}" if option.usd else "",
    "in time": lambda option: _IN_TIME[option.is_in_time],
}
"""A column of the numbers of GPUs; one that is empty throughout is left out."""


def shown_points(plan: Plan) -> tuple[ParetoPoint, ...]:
    """Return the fastest points of the front and its last two, the smallest or on fewer GPUs."""
    points = plan.pareto
    return points if len(points) <= MOST_ROWS else (*points[: MOST_ROWS - 2], *points[-2:])


def shown_rejected(plan: Plan) -> tuple[Rejected, ...]:
    """Return the families that nearly fit, and those that break a limit."""
    too_large = [each for each in plan.rejected if each.findings[0].code in _TOO_LARGE]
    forbidden = [each for each in plan.rejected if each.findings[0].code not in _TOO_LARGE]
    return (*too_large[: MOST_ROWS // 2], *forbidden)


def _ranks_of(plan: Plan, terminal: Terminal) -> str:
    """Return which GPUs stand where: a picture, or the strides of each kind of group."""
    grid = plan_grid(plan)
    if plan.chosen.strategy.data_parallel_size == plan.job.cluster.world_size:
        return ""
    picture = grid.picture()
    if picture:
        body = "\n".join(f"  {line}" for line in picture.splitlines())
    else:
        body = columns_text([(kind, text) for kind, text in grid.strides().items()], terminal.width)
    return terminal.bold("Ranks") + "\n" + body


def _pipeline(plan: Plan, terminal: Terminal) -> str:
    """Return who works when, of a pipeline that is not too long to show."""
    s = plan.chosen.strategy
    start_of_step = timeline(plan.job, s)
    if start_of_step is None:
        return ""
    micro_batches = 1 + max(span.operation.micro_batch for span in start_of_step.spans)
    title = (
        terminal.bold("Pipeline")
        + f" ({s.pipeline_schedule}, the first {micro_batches} micro-batches)"
    )
    legend = "digits: forward, letters: backward, -: weight gradients put off, dots: idle"
    rows = timeline_text(start_of_step, min(terminal.width, WIDTH) - _BESIDE_TIMELINE)
    return "\n".join((title, rows, terminal.paragraph(legend, first="  ", rest="  ")))


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
        ranks_per_expert=s.expert_tensor_parallel_size,
    )


def _rejected(plan: Plan, terminal: Terminal) -> str:
    if not plan.rejected:
        return ""
    rejected = shown_rejected(plan)
    lines = [
        _coded(
            f"{nearest.family}  {nearest.findings[0].code}  {nearest.findings[0].message}", terminal
        )
        for nearest in rejected
    ]
    left = len(plan.rejected) - len(rejected)
    more = _left_out(left) if left else ""
    return "\n".join(
        line
        for line in (terminal.bold("Rejected") + " (--why tp=16 asks for one)", *lines, more)
        if line
    )


def _searched(plan: Plan) -> str:
    summary = plan.search
    return f"Searched {summary.strategies:,} layouts, every legal one; {summary.feasible:,} fit."
