"""One layout that the user chose -> text for a terminal."""

from collections.abc import Sequence

from planner.advice.rules.base import Finding, Severity
from planner.domain.job import Job
from planner.report.layout_words import (
    assumptions_text,
    layout_text,
    ledgers_text,
    total_figures,
)
from planner.report.values import Terminal, figures_text
from planner.request.remarks import Assumption
from planner.search.candidate import Candidate


def estimate_text(
    job: Job,
    candidate: Candidate,
    assumptions: Sequence[Assumption],
    findings: Sequence[Finding],
    terminal: Terminal,
) -> str:
    """Return the report of one layout that the user chose."""
    sections = [
        verdict_text(job, candidate, terminal, findings)
        + "\n"
        + figures_text(total_figures(job, candidate), terminal),
        assumptions_text(assumptions, terminal),
        estimate_findings_text(findings, terminal),
        *ledgers_text(candidate, terminal),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def verdict_text(
    job: Job, candidate: Candidate, terminal: Terminal, findings: Sequence[Finding] = ()
) -> str:
    """Return whether one layout fits, and which it is."""
    verdict = "fits" if candidate.fits else "does not fit"
    is_refused = any(
        finding.code.startswith("LAY") and finding.severity == Severity.BLOCKER
        for finding in findings
    )
    if is_refused and candidate.fits:
        verdict = f"would fit, but {job.framework.name} cannot run it"
    layout = layout_text(candidate.strategy, job)
    return terminal.bold(terminal.paragraph(f"It {verdict}: {layout}"))


def estimate_findings_text(findings: Sequence[Finding], terminal: Terminal) -> str:
    """Return a paragraph for each rule that fired and each limit that is broken."""
    if not findings:
        return ""
    lines = (
        terminal.paragraph(
            f"{finding.code}  {finding.severity}: {finding.message}", first="  ", rest=" " * 10
        )
        for finding in findings
    )
    return "\n".join((terminal.bold("Findings"), *lines))
