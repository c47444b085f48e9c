"""A finding as JSON: the rule that fired, and what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.advice.rules.base import Finding

if TYPE_CHECKING:
    from planner.answers.shapes import FindingAnswer


def finding_answer(finding: Finding) -> FindingAnswer:
    """Return a finding."""
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": str(finding.severity),
        "message": finding.message,
    }
