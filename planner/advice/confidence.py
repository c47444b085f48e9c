"""How far a plan is to be believed, and what it is least sure of."""

from dataclasses import dataclass

from planner.collectives import operations
from planner.domain.cluster import Group
from planner.domain.job import Job
from planner.search.candidate import Candidate

_HIGH, _MEDIUM = 0.35, 0.75
"""Up to so much longer than estimated a step may take, as a fraction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """A word, and where the doubt is."""

    level: str
    """"high", "medium" or "low", by how far the step's range reaches up."""
    reason: str


def confidence(job: Job, candidate: Candidate) -> Confidence:
    """Return how far the estimate of a layout is to be believed.

        reach = high / likely - 1: up to 35 % high, up to 75 % medium

    Source: the framework record's uncertainty section, which published runs set.
    """
    step = candidate.step_time
    reach = float(step.high_seconds / step.step_seconds) - 1
    level = "high" if reach <= _HIGH else "medium" if reach <= _MEDIUM else "low"
    doubts = {term.name: float(term.spread * term.amount) for term in step.terms}
    largest = max(doubts, key=doubts.__getitem__)
    share = doubts[largest] / max(sum(doubts.values()), 1e-12)
    links = ""
    if job.cluster.world_size > 1:
        provenance = operations.provenance(job.cluster, Group(ranks=job.cluster.world_size))
        links = f"; the wires are {provenance}"
    return Confidence(
        level=level,
        reason=f"up to {reach:.0%} longer, {share:.0%} of the doubt in"
        f" {largest.replace('_', ' ')}{links}",
    )
