"""Job -> Plan: enumerate, estimate, let the rules name the family, let the cost model choose."""

import time
from dataclasses import dataclass, replace

import numpy as np

from planner import rules
from planner.candidate import Candidate, estimate
from planner.errors import InvalidInputError, NothingFitsError
from planner.job import Job
from planner.rules import DISAGREEMENT, Finding, Situation
from planner.solve import MOST_GPUS, fits_somehow, with_gpus
from planner.strategy import FAMILIES, Strategy, num_rows, strategies
from planner.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """The best layout of another family, and why it was not chosen."""

    candidate: Candidate
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A family of which nothing fits: its smallest layout, and what the rules say of it."""

    candidate: Candidate
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What was looked at."""

    strategies: int
    feasible: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run, why, and what else was considered."""

    job: Job
    chosen: Candidate
    findings: tuple[Finding, ...]
    """The branch of the tree first, then what the checks say of the choice."""
    alternatives: tuple[Alternative, ...]
    rejected: tuple[Rejected, ...]
    search: Search


def make_plan(job: Job, wish: dict[str, object] | None = None) -> Plan:
    """Return the plan for a job.

    Args:
        job: what is to be trained, on what.
        wish: values of `Strategy` fields that every considered layout must have.

    Raises:
        InvalidInputError: the batch does not split over the GPUs, or no layout meets the wish.
        NothingFitsError: no layout fits; says by how much and what would fit.
    """
    started = time.perf_counter()
    table = estimate(job, strategies(job, wish))
    if not num_rows(table.strategy):
        raise InvalidInputError(
            "no layout meets the wish: " + ", ".join(f"{k}={v}" for k, v in (wish or {}).items()),
            hint="micro_batch_size must divide the global batch of a rank",
            field="strategy",
        )
    best = _best_of_each_family(table)
    fitting = {family: row for family, row in best.items() if row.fits}
    smallest = table.at(int(np.argmin(table.memory.reserved_bytes)))
    if not fitting:
        raise _nothing_fits(job, smallest, wish)
    fastest = min(fitting.values(), key=_preference)
    situation = Situation(
        job=job,
        candidate=fastest,
        smallest_replica=_smallest_replica(job),
        fastest=fastest,
    )
    finding, chosen, disagreement = _choose(situation, fitting)
    checks = rules.judge(replace(situation, candidate=chosen))
    seconds = time.perf_counter() - started
    return Plan(
        job=job,
        chosen=chosen,
        findings=(finding, *disagreement, *checks),
        alternatives=_alternatives(chosen, fitting),
        rejected=_rejected(situation, best),
        search=Search(
            strategies=num_rows(table.strategy), feasible=int(np.sum(table.fits)), seconds=seconds
        ),
    )


def _preference(candidate: Candidate) -> tuple[bool, float]:
    """Order by comfort first, then by speed."""
    return not candidate.is_comfortable, candidate.step_time.step_seconds


def _best_of_each_family(table: Candidate) -> dict[str, Candidate]:
    """Return each family's fastest comfortable layout; else its fastest that fits; else smallest."""
    best: dict[str, Candidate] = {}
    reserved, seconds = table.memory.reserved_bytes, table.step_time.step_seconds
    for stage, family in FAMILIES.items():
        rows = np.flatnonzero(table.strategy.zero_stage == stage)
        if not len(rows):
            continue
        tiers = (rows[table.is_comfortable[rows]], rows[table.fits[rows]])
        ranked = next((tier for tier in tiers if len(tier)), None)
        row = (
            rows[np.argmin(reserved[rows])]
            if ranked is None
            else ranked[np.argmin(seconds[ranked])]
        )
        best[family] = table.at(int(row))
    return best


def _smallest_replica(job: Job) -> Candidate:
    """Return the layout with a whole replica on each GPU that needs the least memory."""
    world_size = job.cluster.world_size
    steps = job.recipe.global_batch_size // world_size
    return estimate(
        job,
        Strategy(
            data_parallel_replicate_size=world_size,
            micro_batch_size=1,
            gradient_accumulation_steps=steps,
            recompute="full",
        ),
    )


def _choose(
    situation: Situation, fitting: dict[str, Candidate]
) -> tuple[Finding, Candidate, tuple[Finding, ...]]:
    """Return the branch taken, the choice, and the finding where search overrules the tree."""
    finding, families = rules.branch(situation)
    preferred = [fitting[family] for family in families if family in fitting]
    if not preferred:
        return finding, situation.fastest, ()
    choice = min(preferred, key=_preference)
    contest = replace(situation, candidate=choice)
    disagreement = DISAGREEMENT.find(contest)
    winner = situation.fastest if rules.follows_search(contest) else choice
    return finding, winner, (disagreement,) if disagreement else ()


def _alternatives(chosen: Candidate, fitting: dict[str, Candidate]) -> tuple[Alternative, ...]:
    others = [c for c in fitting.values() if c.strategy.family != chosen.strategy.family]
    return tuple(
        Alternative(candidate=other, reason=_reason(chosen, other))
        for other in sorted(others, key=_preference)
    )


def _reason(chosen: Candidate, other: Candidate) -> str:
    """Say in numbers why the alternative was not chosen."""
    slower = other.step_time.step_seconds / chosen.step_time.step_seconds - 1
    saved = chosen.memory.reserved_bytes - other.memory.reserved_bytes
    pace = f"{abs(slower):.1%} {'slower' if slower >= 0 else 'faster'}"
    room = f"{format_bytes(abs(saved))} {'less' if saved >= 0 else 'more'} memory"
    return f"{pace}, {room}"


def _rejected(situation: Situation, best: dict[str, Candidate]) -> tuple[Rejected, ...]:
    return tuple(
        Rejected(candidate=row, findings=rules.blockers(replace(situation, candidate=row)))
        for row in best.values()
        if not row.fits
    )


def _nothing_fits(
    job: Job, smallest: Candidate, wish: dict[str, object] | None
) -> NothingFitsError:
    needed, usable = smallest.memory.reserved_bytes, job.usable_bytes
    strategy = smallest.strategy
    return NothingFitsError(
        f"nothing fits: the smallest layout ({strategy.family}, micro-batch"
        f" {strategy.micro_batch_size}, recompute {strategy.recompute}) needs"
        f" {format_bytes(needed)} per GPU of {format_bytes(usable)},"
        f" {format_bytes(needed - usable)} too much",
        hint="; ".join(_remedies(job, wish)) or "use a smaller model or larger GPUs",
        field="cluster",
    )


def _remedies(job: Job, wish: dict[str, object] | None) -> list[str]:
    """Return changes that were tried and make the job fit, each on its own."""
    recipe = job.recipe
    found = []
    if wish and fits_somehow(job):
        found.append("without the pinned strategy it fits")
    nodes = job.cluster.nodes
    while nodes * job.cluster.gpus_per_node < MOST_GPUS:
        nodes *= 2
        larger = with_gpus(job, job.cluster.gpus_per_node, nodes)
        if fits_somehow(larger):
            found.append(f"{larger.cluster.world_size} GPUs would fit")
            break
    if recipe.precision.endswith("-mixed") and "bf16" in job.cluster.gpu.peak_flops:
        pure = replace(recipe, precision="bf16")
        if fits_somehow(replace(job, recipe=pure)):
            found.append("pure bf16 (--precision bf16) would fit")
    length = recipe.sequence_length // 2
    while length >= 128:  # noqa: PLR2004 - shorter is no longer the same job
        if fits_somehow(replace(job, recipe=replace(recipe, sequence_length=length))):
            found.append(f"sequences of {length:,} tokens would fit")
            break
        length //= 2
    return found
