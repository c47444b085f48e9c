"""Why not another layout: what stands against a wish, or what it would cost."""

from typing import Any

from planner.advice.plan import Plan
from planner.advice.why_not import Why, why
from planner.answers.finding import finding_answer
from planner.domain.strategy import Choice
from planner.request.schema import Request
from planner.request.strategy import partial_wish


def ask_why(request: Request, plan: Plan) -> Why:
    """Return what stands against the wish that a request asks about."""
    return why(plan, partial_wish(request.why))


def answer_why(answer: Why) -> dict[str, Any]:
    """Return what stands against a wish, or what it would cost."""
    candidate = answer.candidate
    return {
        "wish": {name: _contract(value) for name, value in answer.wish.items()},
        "strategy": None if candidate is None else candidate.strategy.contract(),
        "step_seconds": None if candidate is None else float(candidate.step_time.step_seconds),
        "layouts": answer.layouts,
        "findings": [finding_answer(finding) for finding in answer.findings],
        "comparison": answer.comparison,
    }


def _contract(value: int) -> int | str:
    """Return a wished value as the contract writes it: a choice by its name."""
    return str(value) if isinstance(value, Choice) else value
