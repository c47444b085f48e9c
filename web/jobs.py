"""A query string -> the plan as a page, as JSON, and as a zip: what takes a while.

Nothing here knows the server: it may be called in any process.
"""

import gc
import json
from dataclasses import asdict
from typing import TypeAlias

from planner import answers
from planner.advice.plan import Plan
from planner.core.errors import InvalidInputError, PlannerError
from planner.generate.archive import zip_files
from planner.generate.write_bundle import bundle_files
from planner.request.schema import Resolved
from planner.request.sections import FilesRequest
from web.described import fields_of, subjects
from web.form import Question, read_question
from web.moved import moved
from web.pages import render
from web.permalink import other_question
from web.phases import of_rollout
from web.result import figures, result
from web.versus import Answered, Versus, groups, side_by_side, versus
from web.what_if import as_chosen

Query: TypeAlias = tuple[tuple[str, str], ...]
"""The names and values of a query string, in its order."""


def warm() -> None:
    """Read what every plan's page needs, and leave it out when garbage is looked for: it stays."""
    draw_plan((("model", "gpt2"),), "")
    gc.freeze()


def draw_plan(query: Query, base_url: str) -> str:
    """Return the page of the plan."""
    question, resolved, plan = _plan(query)
    refusal = None
    try:
        _files(resolved, plan, question.request.files)
    except PlannerError as error:
        refusal = error
    before = _versus(Answered(question=question, plan=plan))
    page = result(question, resolved, plan, refusal=refusal, base_url=base_url)
    return render("plan.html", **page, versus=before)


def draw_estimate(query: Query) -> str:
    """Return the first part of a plan's page, of the layout that a form holds with what its choices say otherwise."""
    asked, held = (
        read_question(as_chosen(query, holds_layout=holds).items()).request
        for holds in (False, True)
    )
    if held.recipe.job == "grpo":
        _, plan = answers.suggest(held, allow_paths=False)
        shown = figures(plan.job, plan.chosen) | of_rollout(plan)
    else:
        shown = figures(*moved(held, asked))
    return render("_answer.html", **shown, is_estimate=True)


def draw_docs(description: bytes, base_url: str) -> str:
    """Return the page of the REST door's routes."""
    said = json.loads(description)
    schemas = said["components"]["schemas"].items()
    shown = {name: each for name, each in schemas if "properties" in each}
    fields = [
        (name, each.get("description", ""), fields_of(each, shown)) for name, each in shown.items()
    ]
    return render("docs.html", subjects=subjects(said), fields=fields, base_url=base_url)


def draw_comparison(query: Query) -> str:
    """Return the page of two plans side by side."""
    return render("compare.html", **side_by_side(*_compared(query)))


def comparison_as_json(query: Query) -> bytes:
    """Return the rows of two plans side by side, and what each was asked for."""
    one, other = _compared(query)
    answer = {
        "a": {"query": one.question.query, "problem": one.problem},
        "b": {"query": other.question.query, "problem": other.problem},
        "groups": [asdict(group) for group in groups(one, other)],
    }
    return _json(answer)


def plan_as_json(query: Query) -> bytes:
    """Return what POST /v1/suggest answers."""
    question, resolved, plan = _plan(query)
    return _json(answers.answer_suggestion(question.request, resolved, plan))


def zip_plan(query: Query) -> bytes:
    """Return a zip with the plan's files."""
    question, resolved, plan = _plan(query)
    return zip_files(_files(resolved, plan, question.request.files), folder="plan")


def _plan(query: Query) -> tuple[Question, Resolved, Plan]:
    question = read_question(query)
    resolved, plan = answers.suggest(question.request, allow_paths=False)
    return question, resolved, plan


def _versus(answered: Answered) -> Versus | None:
    text = answered.question.versus
    if not text:
        return None
    return versus(answered, _answered(other_question(answered.question.short, text)))


def _compared(query: Query) -> tuple[Answered, Answered]:
    """Return the plans of `a` and `b`, of which `b` may say only what it has otherwise."""
    said = dict(query)
    if not said.keys() >= {"a", "b"}:
        raise InvalidInputError(
            "two plans are compared: a and b",
            hint="the links of two plans, or of b what it has otherwise",
            field="a",
        )
    one = other_question({}, said["a"])
    return _answered(one), _answered(other_question(one.short, said["b"]))


def _answered(question: Question) -> Answered:
    try:
        _, plan = answers.suggest(question.request, allow_paths=False)
    except PlannerError as error:
        problem = f"{error.message} ({error.hint})" if error.hint else error.message
        return Answered(question=question, problem=problem)
    return Answered(question=question, plan=plan)


def _json(answer: object) -> bytes:
    return json.dumps(answer, allow_nan=False, separators=(",", ":")).encode("ascii")


def _files(resolved: Resolved, plan: Plan, files: FilesRequest) -> dict[str, str]:
    return bundle_files(plan, answers.answer_plan(resolved, plan, None), files)
