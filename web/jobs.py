"""A query string -> the plan as a page, as JSON, and as a zip: what takes a while.

Nothing here knows the server: it may be called in any process.
"""

import json
from typing import TypeAlias

from planner import answers
from planner.advice.plan import Plan
from planner.core.errors import PlannerError
from planner.generate.archive import zip_files
from planner.generate.write_bundle import bundle_files
from planner.request.schema import Resolved
from web.form import Question, read_question
from web.pages import render
from web.result import result

Query: TypeAlias = tuple[tuple[str, str], ...]
"""The names and values of a query string, in its order."""


def draw_plan(query: Query, base_url: str) -> str:
    """Return the page of the plan."""
    question, resolved, plan = _plan(query)
    refusal = None
    try:
        _files(resolved, plan)
    except PlannerError as error:
        refusal = error
    page = result(question, resolved, plan, refusal=refusal, base_url=base_url)
    return render("plan.html", **page)


def plan_as_json(query: Query) -> bytes:
    """Return what POST /v1/suggest answers."""
    _, resolved, plan = _plan(query)
    answer = answers.answer_plan(resolved, plan, None)
    return json.dumps(answer, allow_nan=False, separators=(",", ":")).encode("ascii")


def zip_plan(query: Query) -> bytes:
    """Return a zip with the plan's files."""
    _, resolved, plan = _plan(query)
    return zip_files(_files(resolved, plan), folder="plan")


def _plan(query: Query) -> tuple[Question, Resolved, Plan]:
    question = read_question(query)
    resolved, plan = answers.suggest(question.request, allow_paths=False)
    return question, resolved, plan


def _files(resolved: Resolved, plan: Plan) -> dict[str, str]:
    """Return the plan's files, or raise the PlannerError that says why none can be written."""
    return bundle_files(plan, answers.answer_plan(resolved, plan, None))
