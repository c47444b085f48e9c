"""A plan beside another: in two lines above it, or row by row on a page of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from string import ascii_uppercase
from typing import Any
from urllib.parse import urlencode

from planner.advice.plan import Plan
from planner.core.units import format_bytes, format_seconds
from planner.memory.ledger import Memory
from planner.report.comparison import ComparedGroup, ComparedRow, comparison, differing, pace, room
from planner.report.layout_words import verdict
from planner.report.summary import heading
from planner.step_time.ledger import StepTime
from web.chart import Total, rows, stacked_bar
from web.controls import labels
from web.form import Question
from web.permalink import otherwise, permalink

_LONGEST = 40
"""Characters that are shown of a value; a pasted topology is many lines."""
_IN_THE_HEADING = ("strategy", "sizes")
"""Rows of a comparison that both plans' headings say."""
_SAID_BY: Mapping[str, tuple[str, ...]] = {
    "model": ("model", "method"),
    "machine": ("gpu", "gpus_per_node", "nodes", "instance"),
    "links of a node": ("intra_node",),
    "network": ("inter_node",),
    "sequence length": ("sequence_length",),
    "global batch": ("global_batch_size",),
    "micro-batch": ("micro_batch_size",),
    "accumulation": ("gradient_accumulation_steps",),
}
"""The parameters that set a row of a comparison, where they are not named as it is."""


_WORDS = {"true": "yes", "false": "no"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A question with its plan, or why there is none."""

    question: Question
    plan: Plan | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    """What became of a plan by what was changed."""

    title: str
    """Of the plan before."""
    changes: tuple[tuple[str, str, str], ...]
    """What was changed, from what, to what."""
    followed: tuple[ComparedRow, ...]
    """What is another too, as it follows from the change or was chosen anew."""
    step: str
    memory: str
    problem: str
    """Why there was no plan before; then there is no title, and no difference."""
    back: str
    side_by_side: str


def versus(answered: Answered, before: Answered) -> Versus:
    """Return what to say above a plan of the one that its link was on."""
    plan, old = answered.plan, before.plan
    has_both = plan is not None and old is not None
    return Versus(
        title=heading(old.job, old.chosen) if old else "",
        changes=tuple(
            (labels().get(name, name), *_values(name, before, answered))
            for name in _changed(before, answered)
        ),
        followed=_followed(before, answered),
        step=pace(old, plan) if plan and old else "",
        memory=room(old.chosen, plan.chosen) if plan and old else "",
        problem=before.problem,
        back="/plan?" + before.question.query,
        side_by_side=compare_link(before.question, answered.question) if has_both else "",
    )


def _changed(before: Answered, after: Answered) -> tuple[str, ...]:
    """Return the parameters that differ; what one says and the other takes as well does not."""
    one, other = before.question.short, after.question.short
    return tuple(
        name
        for name in dict.fromkeys((*one, *other))
        if one.get(name) != other.get(name) and not _is_same(name, before, after)
    )


def _values(name: str, before: Answered, after: Answered) -> tuple[str, str]:
    return _shown(before, name), _shown(after, name)


def _followed(before: Answered, after: Answered) -> tuple[ComparedRow, ...]:
    if before.plan is None or after.plan is None:
        return ()
    changed = set(_changed(before, after))
    return tuple(
        row
        for row in differing(before.plan, after.plan)
        if row.name not in _IN_THE_HEADING
        and changed.isdisjoint(_SAID_BY.get(row.name, (row.name,)))
    )


def _is_same(name: str, before: Answered, after: Answered) -> bool:
    recipes = [each.plan.job.recipe for each in (before, after) if each.plan]
    values = [getattr(recipe, name, None) for recipe in recipes]
    return len(values) > 1 and values[0] is not None and values[0] == values[1]


def _shown(answered: Answered, name: str) -> str:
    text = answered.question.short.get(name) or _taken(answered.plan, name) or "not said"
    text = _WORDS.get(text, text).replace("\n", " ")
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _taken(plan: Plan | None, name: str) -> str:
    """Return what a plan took where its question does not say it; "" of what nobody can say."""
    if plan is None:
        return ""
    layout, lora = plan.chosen.strategy, plan.job.recipe.lora
    if name == "strategy":
        return layout.family
    if name == "method":
        return "full" if lora is None else "qlora" if lora.is_quantised else "lora"
    holders = (plan.job.recipe, plan.job.cluster, layout, plan.job)
    value = next((getattr(each, name) for each in holders if hasattr(each, name)), None)
    if isinstance(value, bool | Enum):
        return str(value).lower()
    if isinstance(value, str):
        return value
    return str(getattr(value, "name", value or ""))


def compare_link(one: Question, other: Question) -> str:
    """Return where two plans stand side by side."""
    said = {"a": one.query, "b": otherwise(other.short, one.short)}
    return "/compare?" + urlencode(said)


def side_by_side(one: Answered, other: Answered) -> dict[str, Any]:
    """Return the context of the page that compares two plans."""
    return {
        "sides": [_side(one), _side(other)],
        "groups": groups(one, other),
        "bars": _bars(one.plan, other.plan) if one.plan and other.plan else [],
        "swapped": compare_link(other.question, one.question),
        "json": compare_link(one.question, other.question).replace(
            "/compare?", "/compare.json?", 1
        ),
    }


def _bars(one: Plan, other: Plan) -> list[dict[str, Any]]:
    """Return the memory and the step of two plans as bars of one scale."""
    memories, steps = (
        [getattr(plan.chosen, name) for plan in (one, other)] for name in ("memory", "step_time")
    )
    return [
        _aligned("Memory of a GPU", room(one.chosen, other.chosen), (one, other), memories),
        _aligned("Optimizer step", pace(one, other), (one, other), steps),
    ]


def _aligned(
    title: str, difference: str, plans: tuple[Plan, Plan], ledgers: Sequence[Memory | StepTime]
) -> dict[str, Any]:
    names = (term.name for ledger in ledgers for term in ledger.terms if term.amount)
    keys = dict(zip(dict.fromkeys(names), ascii_uppercase, strict=False))
    show = format_bytes if isinstance(ledgers[0], Memory) else format_seconds
    parts = [rows(ledger.terms, show, keys) for ledger in ledgers]
    sums = [sum(part.amount for part in each) for each in parts]
    named = {part.letter: replace(part, shown="") for each in parts for part in each}
    return {
        "id": title.replace(" ", "-").lower(),
        "title": title,
        "difference": difference,
        "sides": [
            {
                "title": heading(plan.job, plan.chosen)[:_LONGEST],
                "bar": stacked_bar(
                    each, Total(amount=amount, low=amount, high=amount, full=max(sums))
                ),
                "total": show(amount),
            }
            for plan, each, amount in zip(plans, parts, sums, strict=True)
        ],
        "legend": [named[letter] for letter in sorted(named)],
    }


def groups(one: Answered, other: Answered) -> tuple[ComparedGroup, ...]:
    """Return the rows that compare two plans; none where one of them has none."""
    return comparison(one.plan, other.plan) if one.plan and other.plan else ()


def _side(answered: Answered) -> dict[str, str]:
    plan = answered.plan
    return {
        "title": heading(plan.job, plan.chosen) if plan else "No plan",
        "verdict": str(verdict(plan.job, plan.chosen)) if plan else "",
        "problem": answered.problem,
        "href": permalink(answered.question),
    }
