"""What answers have in common: a layout, a finding, a term."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.advice.rules.base import Finding
from planner.core.term import Term
from planner.domain.job import Job
from planner.domain.strategy import Layout

if TYPE_CHECKING:
    from planner.answers.shapes import Fields, FindingAnswer, TermAnswer


def layout_answer(job: Job, layout: Layout) -> Fields:
    """Return a layout's fields, with the blocks of each chunk where the request deals those of its pipeline."""
    dealt = list(job.pipeline_layout)
    is_of_it = len(dealt) == layout.pipeline_parallel_size * layout.virtual_pipeline_size
    return {**layout.contract(), "pipeline_layout": dealt if is_of_it else None}


def finding_answer(finding: Finding) -> FindingAnswer:
    """Return a finding."""
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": str(finding.severity),
        "message": finding.message,
    }


def term_answer(term: Term, unit: str) -> TermAnswer:
    """Return a term, with what it opens into; bytes are whole numbers, seconds are not."""
    amount = float(term.amount)
    said: TermAnswer = (
        {"name": term.name, "bytes": round(amount), "how": term.how, "source": term.source}
        if unit == "bytes"
        else {"name": term.name, "seconds": amount, "how": term.how, "source": term.source}
    )
    parts = [term_answer(part, unit) for part in term.parts if part.amount]
    return {**said, "parts": parts} if parts else said
