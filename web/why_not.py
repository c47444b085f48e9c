"""What a plan's page says of a layout that was not chosen, and where it asks about another."""

from collections.abc import Mapping
from dataclasses import dataclass

from planner import answers
from planner.advice.plan import Plan
from planner.advice.rules.base import Finding
from planner.advice.why_not import why_answer
from web.form import Question
from web.packed import packed
from web.permalink import opening


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Where to ask: what else the question says, and what it asks about now."""

    held: Mapping[str, str]
    asked: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Why not that: in a sentence, by the rules that stand against it, and where its plan is."""

    asked: str
    said: str
    findings: tuple[Finding, ...]
    href: str
    """"" where it cannot run."""


def ask(question: Question) -> Ask:
    """Return what a form on the plan's page holds to ask about a layout."""
    said = packed(question.short)
    asked = said.pop("why", "")
    return Ask(held=said, asked=asked)


def answer(question: Question, plan: Plan) -> Answer | None:
    """Return what becomes of the layout that a question asks about, if it does."""
    if question.request.why is None:
        return None
    found = answers.ask_why(question.request, plan)
    runs = found.candidate is not None and not found.findings
    return Answer(
        asked=question.values["why"],
        said=why_answer(found),
        findings=found.findings,
        href="/plan?" + opening(question, plan, found.candidate.strategy)
        if runs and found.candidate
        else "",
    )
