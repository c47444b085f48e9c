"""Two plans side by side: rows of what was asked, laid out and estimated, each with its difference."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from planner.advice.alternatives import memory_difference
from planner.advice.plan import Plan
from planner.core.frozen import frozen
from planner.core.term import Term
from planner.core.units import (
    format_bytes,
    format_count,
    format_duration,
    format_fraction,
    format_pace,
    format_percent,
    format_seconds,
)
from planner.domain.job import Job
from planner.memory.ledger import held_in_a_step
from planner.memory.phases import PHASES
from planner.report.layout_words import recompute_text, sizes_text, subject, verdict
from planner.report.summary import heading
from planner.search.candidate import Candidate
from planner.search.training_run import training_run

_ALIKE = ("as fast", "as much memory")


@frozen
class ComparedRow:
    """One line: what it is of, both values, and the second's difference in words."""

    name: str
    one: str
    other: str
    difference: str = ""
    """"" where the values say it all."""

    @property
    def differs(self) -> bool:
        """Return whether the two are told apart."""
        return self.one != self.other and self.difference not in _ALIKE


@frozen
class ComparedGroup:
    """Rows that belong together."""

    title: str
    rows: tuple[ComparedRow, ...]


def comparison(one: Plan, other: Plan) -> tuple[ComparedGroup, ...]:
    """Return what two plans have in common and what not, group by group."""
    return (
        ComparedGroup(title="What it takes", rows=_figures(one, other)),
        ComparedGroup(title="What was asked", rows=_rows(_ASKED, one, other)),
        ComparedGroup(title="How it is laid out", rows=_rows(_LAID_OUT, one, other)),
        ComparedGroup(title="Memory of a GPU at its peak", rows=_memory(one, other)),
        ComparedGroup(
            title="Time of one optimizer step",
            rows=_terms(one.chosen.step_time.terms, other.chosen.step_time.terms, format_seconds),
        ),
        ComparedGroup(title="What was found", rows=_rows(_FOUND, one, other)),
    )


def pace(one: Plan, other: Plan) -> str:
    """Return how the second's step compares with the first's, and from what to what.

    Steps of other batches or lengths are compared per token: a larger batch takes longer, and is faster.
    """
    before, after = _step(one), _step(other)
    steps = f"({format_seconds(before)}, now {format_seconds(after)} a step)"
    of_one, of_other = map(_tokens_of_a_step, (one, other))
    if of_one == of_other:
        return f"{format_pace(after, before)} {steps}"
    return f"{format_pace(after / of_other, before / of_one)} per token {steps}"


def _tokens_of_a_step(plan: Plan) -> int:
    recipe = plan.job.recipe
    return recipe.global_batch_size * recipe.sequence_length


def room(one: Candidate, other: Candidate) -> str:
    """Return how the second's memory compares with the first's, and from what to what."""
    before, after = one.memory.reserved_bytes, other.memory.reserved_bytes
    return f"{memory_difference(other, one)} ({format_bytes(before)}, now {format_bytes(after)})"


def differing(one: Plan, other: Plan) -> tuple[ComparedRow, ...]:
    """Return what was asked or assumed, and the layout's settings, where two plans differ in them."""
    rows = (*_rows(_ASKED, one, other), *_rows(_LAID_OUT, one, other))
    return tuple(row for row in rows if row.differs)


Cells = tuple[str, Callable[[Plan], str]]
"""What a row is of, and its value of a plan."""


def _rows(cells: Sequence[Cells], one: Plan, other: Plan) -> tuple[ComparedRow, ...]:
    return tuple(ComparedRow(name=name, one=cell(one), other=cell(other)) for name, cell in cells)


def _cluster(job: Job) -> str:
    cluster = job.cluster
    nodes = f"{cluster.nodes:,} nodes of " if cluster.nodes > 1 else ""
    return f"{nodes}{cluster.gpus_per_node} x {cluster.gpu.name}"


def _network(job: Job) -> str:
    cluster = job.cluster
    return cluster.inter_node.name if cluster.needs_network and cluster.inter_node else "none"


_ASKED: tuple[Cells, ...] = (
    ("model", lambda plan: subject(plan.job)),
    ("machine", lambda plan: _cluster(plan.job)),
    ("links of a node", lambda plan: plan.job.cluster.intra_node.name),
    ("network", lambda plan: _network(plan.job)),
    ("sequence length", lambda plan: f"{plan.job.recipe.sequence_length:,}"),
    ("global batch", lambda plan: f"{plan.job.recipe.global_batch_size:,}"),
    ("precision", lambda plan: plan.job.recipe.precision),
    ("optimizer", lambda plan: plan.job.recipe.optimizer),
    ("attention", lambda plan: plan.job.recipe.attention),
    ("loss", lambda plan: plan.job.recipe.loss),
    ("framework", lambda plan: plan.job.framework.name),
)
_LAID_OUT: tuple[Cells, ...] = (
    ("strategy", lambda plan: heading(plan.job, plan.chosen)),
    ("sizes", lambda plan: sizes_text(plan.chosen.strategy)),
    ("micro-batch", lambda plan: f"{plan.chosen.strategy.micro_batch_size:,}"),
    ("accumulation", lambda plan: f"{plan.chosen.strategy.gradient_accumulation_steps:,}"),
    ("recompute", lambda plan: recompute_text(plan.chosen.strategy)),
    ("offload", lambda plan: str(plan.chosen.strategy.offload)),
)
_FOUND: tuple[Cells, ...] = (
    ("rules that fired", lambda plan: ", ".join(finding.code for finding in plan.findings)),
    ("trust", lambda plan: plan.confidence.level),
    ("files for", lambda plan: ", ".join(plan.launch.targets) or "none"),
)


def _figures(one: Plan, other: Plan) -> tuple[ComparedRow, ...]:
    differences = {
        "memory of a GPU": memory_difference(other.chosen, one.chosen),
        "headroom": _more(_left_bytes(one), _left_bytes(other), format_bytes),
        "step": format_pace(_step(other), _step(one)),
        "tokens/s": _share(_speed(other), _speed(one)),
        "MFU": _more(_mfu(one), _mfu(other), lambda share: f"{100 * share:.1f} points"),
        "GPU time of a step": _share(_gpu_seconds(other), _gpu_seconds(one)),
    }
    rows = _rows(_FIGURES, one, other)
    told = (replace(row, difference=differences.get(row.name, "")) for row in rows)
    return (*told, *_runs(one, other))


def _step(plan: Plan) -> float:
    return float(plan.chosen.step_time.step_seconds)


def _speed(plan: Plan) -> float:
    return float(plan.chosen.step_time.tokens_per_second_per_gpu) * plan.job.cluster.world_size


def _mfu(plan: Plan) -> float:
    return float(plan.chosen.step_time.model_flops_utilization)


def _left_bytes(plan: Plan) -> float:
    return plan.job.usable_bytes - float(plan.chosen.memory.reserved_bytes)


def _headroom(plan: Plan) -> str:
    left = _left_bytes(plan)
    return format_bytes(left) if left >= 0 else f"{format_bytes(-left)} too much"


def _gpu_seconds(plan: Plan) -> float:
    return _step(plan) * plan.job.cluster.world_size


_FIGURES: tuple[Cells, ...] = (
    ("verdict", lambda plan: verdict(plan.job, plan.chosen)),
    ("memory of a GPU", lambda plan: format_bytes(plan.chosen.memory.reserved_bytes)),
    ("headroom", _headroom),
    ("step", lambda plan: format_seconds(_step(plan))),
    ("tokens/s", lambda plan: format_count(_speed(plan))),
    ("MFU", lambda plan: format_fraction(_mfu(plan))),
    ("GPU time of a step", lambda plan: format_seconds(_gpu_seconds(plan))),
)


def _runs(one: Plan, other: Plan) -> Iterator[ComparedRow]:
    """Yield the run's duration and price, where both know them."""
    before, after = (training_run(plan.job, plan.chosen.step_time) for plan in (one, other))
    if before is None or after is None:
        return
    yield ComparedRow(
        name="whole run",
        one=format_duration(before.seconds),
        other=format_duration(after.seconds),
        difference=format_pace(after.seconds, before.seconds),
    )
    if before.usd and after.usd:
        yield ComparedRow(
            name="price",
            one=f"${before.usd:,.0f}",
            other=f"${after.usd:,.0f}",
            difference=_share(after.usd, before.usd),
        )


def _share(after: float, before: float) -> str:
    change = after / before - 1
    return f"{format_percent(abs(change))} {'more' if change >= 0 else 'less'}"


def _memory(one: Plan, other: Plan) -> tuple[ComparedRow, ...]:
    """Return the moments of both peaks, and the terms; one may be held at another moment than its peak."""
    memories = [plan.chosen.memory for plan in (one, other)]
    moments = [PHASES[int(memory.phase)] for memory in memories]
    held = [
        held_in_a_step(plan.job, plan.chosen.strategy, int(plan.chosen.memory.stage))
        for plan in (one, other)
    ]
    return (
        ComparedRow(name="moment of the peak", one=moments[0], other=moments[1]),
        *_terms(memories[0].terms, memories[1].terms, format_bytes, (held[0], held[1])),
    )


def _terms(
    before: Collection[Term],
    after: Collection[Term],
    show: Callable[[float], str],
    held: tuple[Collection[str], Collection[str]] = ((), ()),
) -> tuple[ComparedRow, ...]:
    """Return a row per term that one of them has.

    Args:
        before: of the first.
        after: of the second.
        show: writes an amount.
        held: names of the terms that each has at another moment, if not at this.
    """
    amounts = [{term.name: float(term.amount) for term in terms} for terms in (before, after)]
    names = [name for name in amounts[0] | amounts[1] if any(each.get(name) for each in amounts)]
    rows = []
    for name in names:
        first, second = (each.get(name, 0.0) for each in amounts)
        one, other = (
            show(amount) if amount else "not held then" if name in of_one else "none"
            for amount, of_one in zip((first, second), held, strict=True)
        )
        words = _more(first, second, show)
        rows.append(
            ComparedRow(name=name.replace("_", " "), one=one, other=other, difference=words)
        )
    return tuple(rows)


def _more(before: float, after: float, show: Callable[[float], str]) -> str:
    if before == after:
        return ""
    return f"{show(abs(after - before))} {'more' if after > before else 'less'}"
