"""Plan -> what the result page shows; every number and sentence is the planner's."""

import json
import shlex
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any
from urllib.parse import parse_qsl, urlencode

from markupsafe import Markup

from planner import __version__, answers
from planner.accuracy.evidence import evidence_table, nearest_evidence
from planner.advice.alternatives import ParetoPoint
from planner.advice.plan import Plan
from planner.advice.rules.verdict import named_beside, obstacle
from planner.advice.why_not import why_answer
from planner.core.errors import PlannerError
from planner.core.units import format_bytes, format_fraction, format_seconds
from planner.domain.job import Job
from planner.memory.phases import PHASES
from planner.parallel.schedule import Span, Timeline
from planner.report.first_screen import reasons
from planner.report.layout_words import communication_figure, verdict
from planner.report.plan import (
    MOST_ROWS,
    alternatives_table,
    options_table,
    plan_grid,
    reasons_without_files,
    shown_points,
    shown_rejected,
    trade_offs_table,
)
from planner.report.rollout import rollout_figures, rollout_trust
from planner.report.summary import chips, heading, tiles
from planner.report.timeline import timeline
from planner.request.schema import Resolved
from planner.search.candidate import Candidate, memory_of_stages
from web.chart import TermRow, Total, memory_total, meter, rows, stacked_bar
from web.form import Question, command_line
from web.memory_figures import memory_figures
from web.node_picture import wiring
from web.packed import has_pasted, packed
from web.permalink import offer_links, opening, otherwise, permalink
from web.phases import of_rollout
from web.ranks import draw_ranks, outlined
from web.scatter import Point, beaten_by, draw_scatter, lettered
from web.sheet import Cell, SheetTable
from web.stages import draw_stages
from web.timeline import draw_timeline, in_words
from web.what_if import beside_choices, what_ifs

_LONGEST_VERSION = 20

_REASONS = 2
"""That a plan's page shows before the rest is opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLinks:
    """Where a row of layouts leads; "" where it leads nowhere."""

    plan: str = ""
    """The query that opens its layout."""
    compare: str = ""


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
    points = _points(question, plan)
    first = reasons(plan.findings)[:_REASONS]
    return {
        "question": question,
        "plan": plan,
        "refusal": refusal,
        **figures(plan.job, plan.chosen),
        **of_rollout(plan),
        "is_estimate": False,
        "reasons": first,
        "more_reasons": [finding for finding in plan.findings if finding not in first],
        "ledgers": (_memory(plan), _time(plan)),
        "memory_figures": memory_figures(plan.job, plan.chosen),
        "assumptions": resolved.assumptions,
        "notes": _notes(question, resolved, plan),
        "node": wiring(plan.job.cluster),
        "alternatives": alternatives_table(plan),
        "without_files": reasons_without_files(plan),
        "row_links": _rows_of_layouts(question, plan),
        "permalink": permalink(question),
        "offers": offer_links(question, plan),
        "what_ifs": what_ifs(question, resolved, plan),
        "beside_choices": beside_choices(question, resolved, plan),
        "ask": _ask(question),
        "why_not": _why_not(question, plan),
        "trade_offs": trade_offs_table(plan),
        "scatter": draw_scatter(
            points, card_bytes=plan.job.cluster.gpu.memory_bytes, usable_bytes=plan.job.usable_bytes
        ),
        "points": lettered(points),
        "held_back": _held_back(plan),
        "rejected": shown_rejected(plan),
        "evidence": _evidence(plan),
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


def _evidence(plan: Plan) -> SheetTable | None:
    """Return the published runs nearest to the plan, each with its source; None where none is of its kind."""
    found = () if plan.rollout else nearest_evidence(plan.job, plan.chosen)
    if not found:
        return None
    table = evidence_table(found)
    return SheetTable(
        title=table.title,
        headings=tuple(heading.name for heading in table.headings),
        rows=tuple(
            tuple(
                Cell(
                    text=text,
                    is_number=heading.is_number,
                    href=f"/accuracy/{text}" if heading.name == "source" else "",
                )
                for text, heading in zip(row.cells, table.headings, strict=True)
            )
            for row in table.rows
        ),
        aside=", ".join(row.cells[-2] for row in table.rows),
    )


def _notes(question: Question, resolved: Resolved, plan: Plan) -> list[str]:
    topology = plan.job.cluster.topology
    findings = topology.findings if topology else ()
    shown = {f"{finding.message} ({finding.code})" for finding in findings}
    communication = communication_figure(plan.chosen)
    said = [communication.text] if communication else []
    if plan.rollout is not None:
        said = [each.text for each in (*rollout_figures(plan.rollout), rollout_trust())]
    kept = (note for note in resolved.notes if note not in shown)
    return [*_of_another_version(question), *said, *kept]


def _of_another_version(question: Question) -> list[str]:
    now = __version__
    if question.made_by in {"", now}:
        return []
    made_by = question.made_by[:_LONGEST_VERSION]
    return [f"the link was made by planner {made_by}, and this is {now}: figures may differ"]


def figures(job: Job, candidate: Candidate) -> dict[str, Any]:
    """Return what a plan's page begins with: how the work is divided, a verdict and a few figures."""
    step = stacked_bar(_time_rows(candidate), _time_total(candidate), is_slim=True)
    pictures = (_memory_meter(job, candidate), step, Markup(), Markup())
    return {
        "heading": heading(job, candidate),
        "verdict": verdict(job, candidate),
        "chips": chips(job, candidate),
        "tiles": tuple(zip(tiles(job, candidate), pictures, strict=False)),
    }


def _memory_meter(job: Job, candidate: Candidate) -> Markup:
    memory, usable = candidate.memory, job.usable_bytes
    full = max(job.cluster.gpu.memory_bytes, float(memory.high_bytes))
    return meter(memory_total(memory, full, usable), format_bytes(memory.reserved_bytes))


def _memory(plan: Plan) -> dict[str, Any]:
    memory, job = plan.chosen.memory, plan.job
    card, usable = job.cluster.gpu.memory_bytes, job.usable_bytes
    stages = draw_stages(memory_of_stages(job, plan.chosen), card_bytes=card, usable_bytes=usable)
    parts = rows(memory.terms, format_bytes, stages.letters)
    moment = PHASES[int(memory.phase)]
    return {
        "id": "memory",
        "title": f"Memory of one GPU {'while it trains' if plan.rollout else 'at its peak'}",
        "aside": f"{len(stages.bars)} pipeline stages" if len(stages.bars) > 1 else moment,
        "moment": moment,
        "stage": int(memory.stage),
        "stages": stages,
        "rows": parts,
        "total": format_bytes(memory.reserved_bytes),
        "range": (format_bytes(memory.low_bytes), format_bytes(memory.high_bytes)),
    }


def _time(plan: Plan) -> dict[str, Any]:
    step_time, parts = plan.chosen.step_time, _time_rows(plan.chosen)
    return {
        "id": "time",
        "title": "Time of the training in it" if plan.rollout else "Time of one optimizer step",
        "aside": "",
        "stages": None,
        "bar": stacked_bar(parts, _time_total(plan.chosen)),
        "rows": parts,
        "total": format_seconds(step_time.step_seconds),
        "range": (format_seconds(step_time.low_seconds), format_seconds(step_time.high_seconds)),
    }


def _time_rows(candidate: Candidate) -> tuple[TermRow, ...]:
    return rows(candidate.step_time.terms, format_seconds)


def _time_total(candidate: Candidate) -> Total:
    step = candidate.step_time
    likely, low, high = map(float, (step.step_seconds, step.low_seconds, step.high_seconds))
    return Total(amount=likely, low=low, high=high, full=likely)


def _points(question: Question, plan: Plan) -> list[Point]:
    points = [
        Point(
            candidate=point.candidate,
            gpus=point.gpus,
            href=_link(question, plan, point),
            is_chosen=_is_choice(plan, point),
        )
        for point in shown_points(plan)
    ]
    if all(not point.is_chosen for point in points):
        points.append(
            Point(candidate=plan.chosen, gpus=plan.job.cluster.world_size, href="", is_chosen=True)
        )
    return points


def _held_back(plan: Plan) -> list[tuple[str, str]]:
    """Return the shown layouts on as many GPUs that are both faster and smaller than the choice, each with why not it."""
    here = (
        each.candidate for each in shown_points(plan) if each.gpus == plan.job.cluster.world_size
    )
    others = (*(each.candidate for each in plan.alternatives[:MOST_ROWS]), *here)
    beating = {str(each.strategy): each for each in others if beaten_by(each, plan.chosen)}
    return [
        (named_beside(each, plan.chosen), obstacle(plan.job, each, plan.chosen))
        for each in beating.values()
    ]


def _is_choice(plan: Plan, point: ParetoPoint) -> bool:
    is_here = point.gpus == plan.job.cluster.world_size
    return is_here and point.candidate.strategy == plan.chosen.strategy


def _link(question: Question, plan: Plan, point: ParetoPoint) -> str:
    """Return where a point's layout is asked for; "" for the choice."""
    if _is_choice(plan, point):
        return ""
    fewer = None if point.gpus == plan.job.cluster.world_size else point.gpus
    return "/plan?" + opening(question, plan, point.candidate.strategy, fewer)


def _rows_of_layouts(question: Question, plan: Plan) -> list[RowLinks]:
    opened = [
        opening(question, plan, alternative.candidate.strategy)
        for alternative in plan.alternatives[:MOST_ROWS]
    ]
    return [
        RowLinks(),
        *(RowLinks(plan=query, compare=_beside(question, query)) for query in opened),
    ]


def _beside(question: Question, query: str) -> str:
    """Return where the plan stands beside another; "" for a question with a pasted text."""
    if has_pasted(question.values):
        return ""
    b = otherwise(dict(parse_qsl(query)), question.short)
    return "/compare?" + urlencode({"a": question.query, "b": b})


def _pipeline(plan: Plan) -> dict[str, Any] | None:
    start_of_step = timeline(plan.job, plan.chosen.strategy)
    if start_of_step is None:
        return None
    return {
        "picture": draw_timeline(start_of_step),
        "stages": _stages_of(start_of_step),
        "words": in_words(start_of_step, int(plan.chosen.strategy.gradient_accumulation_steps)),
    }


def _stages_of(start_of_step: Timeline) -> list[dict[str, str]]:
    stages = groupby(start_of_step.spans, attrgetter("stage"))
    return [_stage_of(list(spans), start_of_step.seconds) for _, spans in stages]


def _stage_of(spans: list[Span], seconds: float) -> dict[str, str]:
    busy = sum(span.end_seconds - span.start_seconds for span in spans)
    start = spans[0].start_seconds
    return {
        "start": format_seconds(start) if start else "0",
        "end": format_seconds(spans[-1].end_seconds),
        "idle": format_fraction(max(0.0, 1 - busy / seconds)),
    }


def _ranks(plan: Plan) -> dict[str, Any] | None:
    if plan.chosen.strategy.data_parallel_size == plan.job.cluster.world_size:
        return None
    grid = plan_grid(plan)
    return {
        "picture": draw_ranks(grid),
        "outlined": outlined(grid),
        "text": grid.picture(),
        "strides": grid.strides(),
    }


def _curl(question: Question, base_url: str) -> str:
    body = json.dumps({name: said for name, said in question.payload.items() if name != "machine"})
    call = ["curl", "-s", f"{base_url}v1/suggest", "-H", "content-type: application/json", "-d"]
    if "machine" not in question.payload:
        return shlex.join([*call, body])
    with_machine = ["jq", "--slurpfile", "machine", "machine.json", ". + {machine: $machine[0]}"]
    return f"echo {shlex.quote(body)} | {shlex.join(with_machine)} | {shlex.join([*call, '@-'])}"


def _ask(question: Question) -> dict[str, Any]:
    """Return what a form holds to ask about another layout: what else the question says, and what it asks now."""
    said = packed(question.short)
    return {"asked": said.pop("why", ""), "held": said}


def _why_not(question: Question, plan: Plan) -> dict[str, Any] | None:
    """Return why a layout that a question asks about was not chosen, and where its plan is if it can run."""
    if question.request.why is None:
        return None
    found = answers.ask_why(question.request, plan)
    runs = found.candidate is not None and not found.findings
    return {
        "asked": question.values["why"],
        "said": why_answer(found),
        "findings": found.findings,
        "href": "/plan?" + opening(question, plan, found.candidate.strategy)
        if runs and found.candidate
        else "",
    }
