"""What limits and rules say of one layout, whichever door it came through."""

from collections.abc import Sequence

from planner.advice import rules
from planner.advice.rules.base import Finding, Severity, Situation
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.search.candidate import Candidate
from planner.search.limits import SOFT, violations, violations_of_each
from planner.search.limits.base import Limit

_OF_SIZES = frozenset({"LAY010", "LAY011", "LAY012"})
"""Limits that a layout breaks by its batch and its number of ranks, not for what it is."""


def layout_findings(job: Job, candidate: Candidate) -> tuple[Finding, ...]:
    """Return what stands against an estimated layout and what an expert would say of it, the worst first.

    What the framework cannot run is a blocker, what no search would propose a warning.
    """
    situation = Situation.of_one(job, candidate)
    broken = (
        _finding(limit, breach, Severity.BLOCKER if limit.is_ability else Severity.WARNING)
        for limit, breach in violations(job, candidate.strategy, SOFT)
    )
    order = list(Severity)
    found = (*broken, *rules.judge(situation))
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))


def limit_findings(job: Job, s: Layout) -> tuple[Finding, ...]:
    """Return the limits that a layout breaks, each with what to do instead."""
    return tuple(_finding(limit, breach, Severity.BLOCKER) for limit, breach in violations(job, s))


def lasting_findings(job: Job, layouts: Sequence[Layout]) -> tuple[tuple[Finding, ...], ...]:
    """Return the limits that each of some layouts breaks for what it is, whatever the batch."""
    return tuple(
        tuple(
            _finding(limit, breach, Severity.BLOCKER)
            for limit, breach in broken
            if limit.code not in _OF_SIZES
        )
        for broken in violations_of_each(job, layouts)
    )


def _finding(limit: Limit, breach: Breach, severity: Severity) -> Finding:
    advice = f"; {breach.advice}" if breach.advice else ""
    message = f"{breach.reason}{advice}"
    return Finding(code=limit.code, name=limit.name, severity=severity, message=message)
