"""A finding as JSON: the rule that fired, and what it says."""

from planner.advice.rules import Finding


def finding_answer(finding: Finding) -> dict[str, str]:
    """Return a finding."""
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": str(finding.severity),
        "message": finding.message,
    }
