"""How far a plan is to be believed, and what it is least sure of."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from planner.catalog.kinds import Likeness, nearest_runs, steps_of_pairs
from planner.catalog.releases import has_own_releases
from planner.core.frozen import frozen
from planner.core.units import format_fraction
from planner.domain.cluster import Provenance
from planner.domain.job import OF_PAIRS, Job
from planner.domain.kinds import kind_of
from planner.search.candidate import Candidate
from planner.step_time.doubt import Cause, network_provenance

_HIGH, _MEDIUM = 0.35, 0.75
"""Up to so much longer than estimated a step may take, and so far off nine in ten runs of its kind, as fractions."""
CAUSES: Mapping[Cause, str] = MappingProxyType(
    {
        Cause.KERNELS: "how fast kernels run inside a training step",
        Cause.CURVE: "the matmul speed of {gpu}",
        Cause.MEMORY_BOUND: "the speed of elementwise kernels and of the optimizer",
        Cause.HOST: "how fast your CPU launches kernels",
        Cause.NETWORK: "the speed of your network",
        Cause.OFFLOAD: "the speed of your host memory and CPU",
        Cause.ADAPTERS: "matmuls beside frozen weights",
        Cause.KIND: "how this kind of job differs from those that were timed",
        Cause.RELEASE: "your release of {framework}",
    }
)
"""What each cause is called as the main uncertainty."""
LINKS: Mapping[Provenance, str] = MappingProxyType(
    {
        Provenance.OWN: "measured on your machine",
        Provenance.MEASURED: "measured on such hardware",
        Provenance.DERIVED: "calculated, not measured",
        Provenance.ASSUMED: "assumed, not measured",
    }
)
"""Where the speed of what joins the GPUs is from."""


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
    reason = "; ".join(_parts(job, candidate, like))
    return Confidence(level=level, reason=reason, like=like)


def _parts(job: Job, candidate: Candidate, like: Likeness | None) -> Iterator[str]:
    """Yield the nearest runs, the largest cause of doubt, what could be said or measured, and where the runs are listed."""
    name = job.framework.name
    yield like_words(job, like)
    yield f"main uncertainty: {_largest_doubt(job, candidate)}"
    if not job.framework.release and has_own_releases(name):
        yield f"--framework-version would say which {name} you run"
    if job.cluster.world_size > 1:
        yield f"link speed: {LINKS[network_provenance(job)]}"
    if like:
        yield f"planner accuracy --source {like.sources[0]} lists those runs"


def likeness(job: Job, candidate: Candidate) -> Likeness | None:
    """Return the published runs that are nearest to a layout: of its kind, on its GPU, with its framework.

    Those that trained on pairs of answers are too few to say what nine in ten are.
    """
    if job.recipe.job in OF_PAIRS:
        return None
    kind = kind_of(job, candidate.strategy)
    return nearest_runs(kind, job.cluster.gpu.name, job.framework.name)


def like_words(job: Job, like: Likeness | None) -> str:
    """Return them in words: "nine in ten of 14 published runs of mixtures of experts came within 49 %"."""
    if job.recipe.job in OF_PAIRS:
        of_pairs = steps_of_pairs()
        return f"{of_pairs.steps} published runs on pairs came within {format_fraction(of_pairs.within)}"
    if like is None:
        return "no published run is of this kind"
    return f"nine in ten of {like.words} came within {format_fraction(like.within)}"


def confidence_in_brief(job: Job, candidate: Candidate) -> str:
    """Return what sets the level: the nearest runs, or the estimate's own range where that reaches further."""
    like, reach = likeness(job, candidate), _reach(candidate)
    cause = _largest_doubt(job, candidate)
    if reach <= max(_HIGH, like.within if like else _MEDIUM):
        is_wider = like is not None and reach > like.within
        return like_words(job, like) + (
            f"; the range is wider because of {cause}" if is_wider else ""
        )
    return f"a step may take {format_fraction(reach)} longer; main uncertainty: {cause}"


def _largest_doubt(job: Job, candidate: Candidate) -> str:
    doubts = candidate.step_time.doubts
    largest = max(doubts, key=lambda cause: float(doubts[cause]))
    return CAUSES[largest].format(gpu=job.cluster.gpu.name, framework=job.framework.name)


def _reach(candidate: Candidate) -> float:
    return float(candidate.step_time.high_seconds / candidate.step_time.step_seconds) - 1
