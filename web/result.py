"""Plan -> what the result page shows; every number and sentence is the planner's."""

import json
import shlex
from typing import Any

from planner.advice.plan import Plan
from planner.core.errors import PlannerError
from planner.core.units import format_bytes, format_seconds
from planner.domain.cluster import Cluster
from planner.domain.strategy import DATA_NAMES, Layout
from planner.hardware.placement import cuda_visible_devices
from planner.memory.phases import PHASES
from planner.report.cluster import rings_table
from planner.report.plan import (
    MOST_ROWS,
    alternatives_table,
    options_table,
    plan_grid,
    reasons_without_files,
    shown_rejected,
    trade_offs_table,
)
from planner.report.text import (
    FLAGS,
    communication_figure,
    memory_figure,
    recommendation,
    run_figure,
    time_figure,
)
from planner.report.timeline import timeline
from planner.request.schema import Resolved
from planner.search.candidate import memory_of_stages
from web.chart import Scale, meter, rows, stacked_bar
from web.form import Question, command_line
from web.islands import picture
from web.memory_figures import memory_figures
from web.node_text import legend, title
from web.node_tree import node_tree
from web.stages import draw_stages
from web.timeline import draw_timeline


def result(
    question: Question,
    resolved: Resolved,
    plan: Plan,
    *,
    refusal: PlannerError | None,
    base_url: str,
) -> dict[str, Any]:
    """Return the context of the result page.

    Args:
        question: what was asked.
        resolved: with what was assumed.
        plan: the answer.
        refusal: why no files can be written for the plan, if so.
        base_url: where this service is reached, with a closing slash.
    """
    return {
        "question": question,
        "plan": plan,
        "refusal": refusal,
        "recommendation": recommendation(plan.job, plan.chosen),
        "totals": (memory_figure(plan.job, plan.chosen), time_figure(plan.job, plan.chosen)),
        "ledgers": (_memory(plan), _time(plan)),
        "memory_figures": memory_figures(plan.job, plan.chosen),
        "assumptions": resolved.assumptions,
        "notes": _notes(resolved, plan),
        "node": _node(plan.job.cluster),
        "flags": FLAGS,
        "alternatives": alternatives_table(plan),
        "without_files": reasons_without_files(plan),
        "queries": _queries(question, plan),
        "trade_offs": trade_offs_table(plan),
        "rejected": shown_rejected(plan),
        "options": options_table(plan),
        "ranks": _ranks(plan),
        "pipeline": _pipeline(plan),
        "links": [
            link for link in (plan.job.cluster.intra_node, plan.job.cluster.inter_node) if link
        ],
        "command": command_line(
            question, resolved.job.cluster.gpu.name, resolved.job.cluster.gpus_per_node
        ),
        "curl": _curl(question, base_url),
    }


def _notes(resolved: Resolved, plan: Plan) -> list[str]:
    """Return the notes, without what the section on the topology says."""
    topology = plan.job.cluster.topology
    findings = topology.findings if topology else ()
    shown = {f"{finding.message} ({finding.code})" for finding in findings}
    figures = (communication_figure(plan.chosen), run_figure(plan.job, plan.chosen))
    said = [figure.text for figure in figures if figure]
    return [*said, *(note for note in resolved.notes if note not in shown)]


def _node(cluster: Cluster) -> dict[str, Any] | None:
    """Return how a node is wired and what that is worth to its ranks, if a topology was read."""
    if cluster.topology is None:
        return None
    order = cluster.gpu_order or tuple(range(cluster.gpus_per_node))
    node = node_tree(cluster.topology, order)
    return {
        "title": title(node),
        "picture": picture(node),
        "legend": tuple(legend(node)),
        "rings": rings_table(cluster.group_links, cluster.gpus_per_node),
        "order": [f"GPU{gpu}" for gpu in order],
        "devices": cuda_visible_devices(order),
        "findings": cluster.topology.findings,
    }


def _memory(plan: Plan) -> dict[str, Any]:
    memory, job = plan.chosen.memory, plan.job
    card, usable = job.cluster.gpu.memory_bytes, job.usable_bytes
    stages = draw_stages(memory_of_stages(job, plan.chosen), card_bytes=card, usable_bytes=usable)
    parts = rows(memory.terms, format_bytes, stages.letters)
    scale = Scale(
        full=max(card, float(memory.high_bytes)),
        low=float(memory.low_bytes),
        high=float(memory.high_bytes),
        limit=usable,
    )
    total = format_bytes(memory.reserved_bytes)
    return {
        "id": "memory",
        "title": "Memory of one GPU at its peak",
        "moment": PHASES[int(memory.phase)],
        "stage": int(memory.stage),
        "stages": stages,
        "meter": meter(float(memory.reserved_bytes), total, scale),
        "key": f"Bar: the card's {format_bytes(card)}. Dashed: what a process can take."
        " Bracket: likely range.",
        "rows": parts,
        "total": total,
        "range": (format_bytes(memory.low_bytes), format_bytes(memory.high_bytes)),
    }


def _time(plan: Plan) -> dict[str, Any]:
    step_time = plan.chosen.step_time
    parts = rows(step_time.terms, format_seconds)
    likely = float(step_time.step_seconds)
    low, high = float(step_time.low_seconds), float(step_time.high_seconds)
    total = format_seconds(step_time.step_seconds)
    return {
        "id": "time",
        "title": "Time of one optimizer step",
        "moment": "",
        "stages": None,
        "meter": meter(likely, total, Scale(full=high, low=low, high=high)),
        "key": "Bracket: likely range.",
        "bar": stacked_bar(parts, Scale(full=likely, low=low, high=high)),
        "rows": parts,
        "total": total,
        "range": (format_seconds(low), format_seconds(high)),
    }


def _queries(question: Question, plan: Plan) -> list[str]:
    """Return the query that asks for each row of the table of alternatives."""
    alternatives = (alternative.candidate for alternative in plan.alternatives[:MOST_ROWS])
    loss = plan.job.recipe.loss
    of_job = {} if loss == "standard" else {"loss": loss}
    return [
        question.query_with(**of_job, **_pins(candidate.strategy))
        for candidate in (plan.chosen, *alternatives)
    ]


def _pins(s: Layout) -> dict[str, str]:
    """Return the parameters that ask for this very layout: every field of it."""
    pinned = {name: str(value) for name, value in s.contract().items() if value is not None}
    pinned["strategy"] = DATA_NAMES[int(pinned.pop("zero_stage"))]
    pinned["sequence_parallel"] = pinned["sequence_parallel"].lower()
    return pinned


def _pipeline(plan: Plan) -> dict[str, Any] | None:
    """Return the picture of who works when, if there is a pipeline of few enough stages."""
    start_of_step = timeline(plan.job, plan.chosen.strategy)
    if start_of_step is None:
        return None
    return {
        "picture": draw_timeline(start_of_step),
        "shown": 1 + max(span.operation.micro_batch for span in start_of_step.spans),
        "idle": start_of_step.bubble_fraction,
    }


def _ranks(plan: Plan) -> dict[str, Any] | None:
    """Return which GPUs stand where, if the model is divided at all."""
    if plan.chosen.strategy.data_parallel_size == plan.job.cluster.world_size:
        return None
    grid = plan_grid(plan)
    return {"picture": grid.picture(), "strides": grid.strides()}


def _curl(question: Question, base_url: str) -> str:
    body = json.dumps(question.payload)
    header = "content-type: application/json"
    return shlex.join(["curl", "-s", f"{base_url}v1/suggest", "-H", header, "-d", body])
