"""Why not another layout: the limits it breaks, or what it would take beside the choice."""

from dataclasses import replace

import numpy as np

from planner.advice import rules
from planner.advice.alternatives import memory_difference
from planner.advice.choice import proposable
from planner.advice.layout_findings import limit_findings
from planner.advice.plan import Plan
from planner.advice.rules.base import Finding, Situation
from planner.advice.rules.verdict import lack, named_beside
from planner.core.frozen import frozen
from planner.core.units import format_pace, format_seconds
from planner.domain.job import Job
from planner.search.candidate import Candidate
from planner.search.pinned_fields import AtLeast, PinnedFields, filled, simplest_layout
from planner.search.search import search

_MOST_TERMS = 3
"""Terms of a difference that are told."""


@frozen
class WhyNot:
    """What becomes of a layout with the pinned fields."""

    pinned: PinnedFields
    job: Job
    """The plan's; without the request's own layout of a pipeline where the fields are of another pipeline."""
    findings: tuple[Finding, ...]
    """Why it cannot be; empty where it can."""
    candidate: Candidate | None
    """The best layout with the pinned fields, or the smallest; None where none is legal."""
    layouts: int
    comparison: str
    """Beside the choice, with what it lacks, in a sentence; empty where it cannot run."""
    name: str = ""
    """Of the best layout: its family, and in what else it differs from the choice."""


def why_not(plan: Plan, pinned: PinnedFields, beside: PinnedFields | None = None) -> WhyNot:
    """Return what stands against the pinned fields, or what they would cost.

    Args:
        plan: what is proposed.
        pinned: what is asked about.
        beside: what the plan itself was held to, which holds for the answer where a layout has both.
    """
    job, asked = _asked_of(plan, pinned)
    for held in ({**(beside or {}), **asked}, asked, _with_replicas(asked)):
        result = search(job, held)
        if result.size:
            break
    else:
        broken = limit_findings(job, simplest_layout(job, filled(job, asked)))
        return WhyNot(
            pinned=pinned, job=job, findings=broken, candidate=None, layouts=0, comparison=""
        )
    row = result.best(proposable(result, asked), result.step_seconds)
    smallest = result.smallest(np.arange(result.size))
    candidate = result.candidate(smallest if row is None else row)
    findings: tuple[Finding, ...] = ()
    if row is None:
        findings = rules.blockers(Situation.of_one(job, candidate))
    comparison = "" if findings else _compare(plan.chosen, job, candidate)
    return WhyNot(
        pinned=pinned,
        job=job,
        findings=findings,
        candidate=candidate,
        layouts=result.size,
        comparison=comparison,
        name=named_beside(candidate, plan.chosen),
    )


def _with_replicas(asked: PinnedFields) -> PinnedFields:
    """Return the same with data parallelism of any kind beside it, where a family's name has none.

    Who asks why not pp of 512 GPUs does not mean 512 stages.
    """
    if (asked.get("data_parallel_size"), asked.get("zero_stage")) != (1, 0):
        return asked
    sizes = {name: value for name, value in asked.items() if name != "zero_stage"}
    return {**sizes, "data_parallel_size": AtLeast(2)}


def _asked_of(plan: Plan, pinned: PinnedFields) -> tuple[Job, PinnedFields]:
    """Return the job and the fields that a question is about, where a request deals the blocks itself.

    They are dealt to the stages of one pipeline: a question that does not change that is about layouts
    with it, any other about layouts whose blocks the framework deals.
    """
    if not plan.job.pipeline_layout:
        return plan.job, pinned
    s = plan.chosen.strategy
    pipeline = {
        "pipeline_parallel_size": s.pipeline_parallel_size,
        "virtual_pipeline_size": s.virtual_pipeline_size,
    }
    if pipeline.items() <= {**pipeline, **pinned}.items():
        return plan.job, {**pipeline, **pinned}
    return replace(plan.job, pipeline_layout=()), pinned


def _compare(chosen: Candidate, job: Job, candidate: Candidate) -> str:
    if candidate.strategy == chosen.strategy:
        return "the choice itself"
    pace = format_pace(candidate.step_time.step_seconds, chosen.step_time.step_seconds)
    terms = {term.name: float(term.amount) for term in candidate.step_time.terms}
    for term in chosen.step_time.terms:
        terms[term.name] = terms.get(term.name, 0.0) - float(term.amount)
    largest = sorted(terms.items(), key=lambda item: -abs(item[1]))[:_MOST_TERMS]
    differences = ", ".join(
        f"{name.replace('_', ' ')} {'+' if seconds > 0 else '-'}{format_seconds(abs(seconds))}"
        for name, seconds in largest
        if seconds
    )
    compared = f"{pace} {'than' if pace.endswith(('faster', 'slower')) else 'as'} the choice"
    missing = lack(job, candidate, chosen)
    return "".join(
        (
            f"{compared}, {memory_difference(candidate, chosen)}",
            f": {differences}" if differences else "",
            f"; {missing}" if missing else "",
        )
    )


def why_answer(answer: WhyNot) -> str:
    """Return the answer in a sentence; which rules stand against it are the answer's findings."""
    if answer.candidate is None:
        return "not proposed" if answer.findings else "not proposed: no layout has all of it"
    if answer.findings:
        return f"none of {answer.layouts:,} layouts fits"
    return f"the best of {answer.layouts:,} layouts is {answer.name}, {answer.comparison}"


def why_text(answer: WhyNot, question: str) -> str:
    """Return the answer in a paragraph."""
    reasons = [f"  {finding.code}  {finding.message}" for finding in answer.findings]
    return "\n".join([f"{question}: {why_answer(answer)}", *reasons])
