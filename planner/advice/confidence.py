"""How far a plan is to be believed, and what it is least sure of."""

from collections.abc import Mapping
from types import MappingProxyType

from planner.catalog.kinds import Likeness, nearest_runs
from planner.catalog.releases import has_own_releases
from planner.core.frozen import frozen
from planner.core.units import format_fraction
from planner.domain.job import Job
from planner.domain.kinds import kind_of
from planner.search.candidate import Candidate
from planner.step_time.doubt import Cause, network_provenance

_HIGH, _MEDIUM = 0.35, 0.75
"""Up to so much longer than estimated a step may take, and so far off nine in ten runs of its kind, as fractions."""
_WORDS: Mapping[Cause, str] = MappingProxyType(
    {
        Cause.KERNELS: "what training keeps of a kernel's speed",
        Cause.CURVE: "the matmul curve of {gpu}",
        Cause.MEMORY_BOUND: "the speed of elementwise kernels and the optimizer",
        Cause.HOST: "how fast the host launches",
        Cause.NETWORK: "the network",
        Cause.OFFLOAD: "the host's memory and CPUs",
        Cause.ADAPTERS: "matmuls beside frozen weights",
        Cause.KIND: "what such jobs are off by elsewhere",
        Cause.RELEASE: "how your {framework} differs from the releases that were timed",
    }
)


@frozen
class Confidence:
    """A word, and where the doubt is."""

    level: str
    """"high", "medium" or "low", by how far the step's range reaches up, and how far off the nearest runs are."""
    reason: str
    like: Likeness | None
    """The published runs that are nearest to the plan; None where there are none of its kind."""


def confidence(job: Job, candidate: Candidate) -> Confidence:
    """Return how far the estimate of a layout is to be believed.

        off = max(high / likely - 1, that of nine in ten of the nearest runs): up to 35 % high, up to 75 % medium

    Source: the framework record's uncertainty section, and data/calibration/likeness.json, which published runs set.
    """
    like = likeness(job, candidate)
    off = max(_reach(candidate), like.within if like else _MEDIUM)
    level = "high" if off <= _HIGH else "medium" if off <= _MEDIUM else "low"
    reason = f"{doubt(job, candidate)}{_unknown(job)}{_where(like)}"
    return Confidence(level=level, reason=reason, like=like)


def likeness(job: Job, candidate: Candidate) -> Likeness | None:
    """Return the published runs that are nearest to a layout: of its kind, on its GPU, with its framework."""
    kind = kind_of(job, candidate.strategy)
    return nearest_runs(kind, job.cluster.gpu.name, job.framework.name)


def like_words(like: Likeness | None) -> str:
    """Return them in a sentence's words: "like 14 runs of mixtures of experts: nine in ten within 49 %"."""
    if like is None:
        return "no published run is of its kind"
    return f"like {like.words}: nine in ten within {format_fraction(like.within)}"


def doubt(job: Job, candidate: Candidate, *, names_runs: bool = True) -> str:
    """Return how far a step's range reaches up, the nearest runs where they are asked for, and the greatest cause."""
    step = candidate.step_time
    squares = {cause: float(width) ** 2 for cause, width in step.doubts.items()}
    largest = max(squares, key=squares.__getitem__)
    share = squares[largest] / max(sum(squares.values()), 1e-12)
    words = _WORDS[largest].format(gpu=job.cluster.gpu.name, framework=job.framework.name)
    like = f" {like_words(likeness(job, candidate))};" if names_runs else ""
    return (
        f"a step may take {format_fraction(_reach(candidate))} longer;{like} least sure is {words}"
        f" ({format_fraction(share)} of the doubt)"
    )


def _where(like: Likeness | None) -> str:
    return f"; planner accuracy --source {like.sources[0]} lists such runs" if like else ""


def _reach(candidate: Candidate) -> float:
    return float(candidate.step_time.high_seconds / candidate.step_time.step_seconds) - 1


def _unknown(job: Job) -> str:
    """Say what widens the range and can be had: a release, a curve, a network."""
    said, name = "", job.framework.name
    if not job.framework.release and has_own_releases(name):
        said += f"; the release of {name} was not said (--framework-version)"
    if job.cluster.world_size > 1:
        said += f"; the speed of the wires is {network_provenance(job)}"
    return said
