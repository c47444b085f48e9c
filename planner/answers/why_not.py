"""Why not another layout: what stands against pinned fields, or what they would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.advice.plan import Plan
from planner.advice.why_not import WhyNot, why_not
from planner.answers.finding import finding_answer
from planner.answers.layout import layout_answer
from planner.domain.strategy import Choice
from planner.request.schema import Request
from planner.request.strategy import pinned_fields
from planner.search.pinned_fields import AtLeast

if TYPE_CHECKING:
    from planner.answers.shapes import WhyAnswer


def ask_why(request: Request, plan: Plan) -> WhyNot:
    """Return what stands against the fields that a request asks about, beside those that it holds fixed."""
    return why_not(plan, pinned_fields(request.why), pinned_fields(request.strategy))


def answer_why(answer: WhyNot) -> WhyAnswer:
    """Return what stands against the pinned fields, or what they would cost."""
    candidate = answer.candidate
    return {
        "wish": {name: _contract(value) for name, value in answer.pinned.items()},
        "strategy": None if candidate is None else layout_answer(answer.job, candidate.strategy),
        "step_seconds": None if candidate is None else float(candidate.step_time.step_seconds),
        "layouts": answer.layouts,
        "findings": [finding_answer(finding) for finding in answer.findings],
        "comparison": answer.comparison,
    }


def _contract(value: int) -> int | str:
    """Return a wished value as the contract writes it: a choice by its name, "2 or more" in words."""
    return str(value) if isinstance(value, Choice | AtLeast) else value
