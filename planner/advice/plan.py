"""Job -> Plan: search every layout, let the rules name what they admit, let the cost model choose."""

import time
from dataclasses import dataclass, replace

import numpy as np

from planner.advice import rules
from planner.advice.alternatives import (
    Alternative,
    Point,
    Rejected,
    alternatives,
    best_of_families,
    forbidden,
    pareto,
    shown,
    too_large,
)
from planner.advice.confidence import Confidence, confidence
from planner.advice.rules import DISAGREEMENT, Finding, Preference, Situation
from planner.core.errors import InvalidInputError, NothingFitsError
from planner.core.term import Column
from planner.core.units import format_bytes
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import Job
from planner.domain.strategy import Layout, Offload, Recompute, nearest_multiples, rows
from planner.memory.host import estimate_host_memory
from planner.memory.ledger import estimate_memory
from planner.search.candidate import Candidate, estimate
from planner.search.largest_that_fits import remedies, with_gpus
from planner.search.limits import violations
from planner.search.search import Found, search
from planner.search.wish import Wish, filled


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What the job takes on some of the GPUs."""

    gpus: int
    nodes: int
    step_seconds: float
    gpu_seconds_per_step: float
    run_seconds: float
    """Of the recipe's tokens; 0 where it names none."""
    usd: float
    """Of the run, or of a step where its length is unknown; 0 where no price is known."""
    is_in_time: bool


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
    pareto: tuple[Point, ...]
    """The fastest first."""
    search: Search
    confidence: Confidence
    options: tuple[Option, ...] = ()
    """By number of GPUs, those that fit; only where their number was open."""


def make_plan(job: Job, wish: Wish | None = None, objective: str = "time") -> Plan:
    """Return the plan for a job.

    Args:
        job: what is to be trained, on what.
        wish: values of `Layout` fields that every considered layout must have.
        objective: "time", or "memory" for the smallest layout.

    Raises:
        InvalidInputError: the batch does not split over the GPUs, or no layout meets the wish.
        NothingFitsError: no layout fits; says by how much and what would fit.
    """
    started = time.perf_counter()
    found = search(job, wish)
    if not found.size:
        raise _no_layout(job, wish or {})
    ordinary = ordinary_rows(found, wish or {})
    if not len(ordinary):
        raise _nothing_fits(found, wish)
    situation = _situation(found, ordinary, wish or {})
    finding, chosen, disagreement = _choose(situation, found, ordinary, wish, objective)
    situation = replace(situation, candidate=chosen)
    best = best_of_families(found)
    found.candidates(shown(found, ordinary, best))  # one table is quicker than one for each list
    return Plan(
        job=job,
        chosen=chosen,
        findings=(finding, *disagreement, *rules.judge(situation)),
        alternatives=alternatives(found, chosen, best),
        rejected=(*too_large(situation, found, best), *forbidden(job, wish)),
        pareto=pareto(situation, found, ordinary),
        search=Search(
            strategies=found.size,
            feasible=int(np.sum(found.fits)),
            seconds=time.perf_counter() - started,
        ),
        confidence=confidence(job, chosen),
    )


def ordinary_rows(found: Found, wish: Wish) -> Column:
    """Return the rows that may be proposed: those that fit, train as DDP does, and use the GPU.

    Local SGD trains another way and offload is slow, so both are proposed where they are wished for;
    offload also where nothing else fits and the host's memory is known.
    """
    fits = found.fits.copy()
    if "synchronize_every" not in wish:
        fits &= np.logical_not(found.table.is_local)
    on_gpu = fits & np.logical_not(found.table.offloads_optimizer)
    is_known = found.job.cluster.host_memory_bytes > 0
    is_needed = "offload" in wish or (is_known and not np.any(on_gpu))
    return np.flatnonzero(fits if is_needed else on_gpu)


def _situation(found: Found, ordinary: Column, wish: Wish) -> Situation:
    job = found.job
    fastest = found.candidate(_best(found, ordinary, found.weighted_seconds))
    return Situation(
        job=job,
        candidate=fastest,
        smallest_replica=_smallest_replica(job),
        fastest=fastest,
        simplest=_simplest(found, ordinary, wish),
        fewer=_fewer(job),
        largest_layer_bytes=_largest_layer_bytes(job),
    )


def _simplest(found: Found, ordinary: Column, wish: Wish) -> Candidate | None:
    """Return the fastest of plain DDP that fits, whatever was wished for."""
    if wish:
        sizes = {each.field: 1 for each in DIMENSIONS}
        found = search(found.job, {**sizes, "zero_stage": 0, "synchronize_every": 1})
        ordinary = np.flatnonzero(found.fits)
    plain = ordinary[rules.PLAIN.admits(rows(found.table, ordinary))]
    row = found.best(plain, found.step_seconds)
    return None if row is None else found.candidate(row)


def _best(found: Found, among: Column, by: Column) -> int:
    row = found.best(among, by)
    if row is None:
        raise AssertionError("rows that fit have a best")
    return row


def _fewer(job: Job) -> dict[str, Candidate]:
    """Return the fastest layout on one GPU and on one node, where they are fewer and it fits."""
    sizes = {}
    if job.cluster.world_size > 1:
        sizes["one GPU"] = with_gpus(job, 1, 1)
    if job.cluster.nodes > 1:
        sizes["one node"] = with_gpus(job, job.cluster.gpus_per_node, 1)
    fastest = {}
    for name, smaller in sizes.items():
        found = search(smaller)
        ordinary = ordinary_rows(found, {})
        if len(ordinary) and np.any(found.table.offload[ordinary] == Offload.NONE):
            fastest[name] = found.candidate(_best(found, ordinary, found.weighted_seconds))
    return fastest


def _smallest_replica(job: Job) -> Candidate:
    """Return the layout with a whole replica on each GPU that needs the least memory."""
    world_size = job.cluster.world_size
    steps = max(1, job.recipe.global_batch_size // world_size)
    return estimate(
        job,
        Layout(
            data_parallel_replicate_size=world_size,
            micro_batch_size=1,
            gradient_accumulation_steps=steps,
            recompute=Recompute.FULL,
        ),
    )


def _largest_layer_bytes(job: Job) -> float:
    """Return what the fullest stage takes when every stage is a single layer, ZeRO-1 over all GPUs.

    Of one token: what longer sequences add is no property of the layer, and is divided by context.
    """
    if not job.model.is_decoder:
        return 0.0
    of_one_token = replace(job, recipe=replace(job.recipe, sequence_length=1))
    layers = Layout(
        data_parallel_shard_size=job.cluster.world_size,
        pipeline_parallel_size=job.model.num_blocks,
        zero_stage=1 if 1 in job.framework.zero_stages else 0,
        recompute=Recompute.FULL,
    )
    return float(estimate_memory(of_one_token, layers).reserved_bytes)


def _choose(
    situation: Situation, found: Found, ordinary: Column, wish: Wish | None, objective: str
) -> tuple[Finding, Candidate, tuple[Finding, ...]]:
    """Return the branch taken, the choice, and the finding where search overrules the tree."""
    finding, preference = rules.branch(situation)
    if objective == "memory":
        return finding, found.candidate(found.smallest(ordinary)), ()
    preferred = ordinary[preference.admits(rows(found.table, ordinary))]
    if not len(preferred):
        _check_batch(situation, preference, wish or {})
        return finding, situation.fastest, ()
    choice = found.candidate(_best(found, preferred, found.weighted_seconds))
    contest = replace(situation, candidate=choice)
    disagreement = DISAGREEMENT.find(contest)
    winner = situation.fastest if rules.follows_search(contest) else choice
    return finding, winner, (disagreement,) if disagreement else ()


def _check_batch(situation: Situation, preference: Preference, wish: Wish) -> None:
    """Refuse a batch that only dividing the model could split, where the model needs no division."""
    job = situation.job
    batch, world_size = job.recipe.global_batch_size, job.cluster.world_size
    if preference == rules.PLAIN and not wish and batch % world_size:
        raise _unsplit(batch, world_size)


def _unsplit(batch: int, world_size: int) -> InvalidInputError:
    return InvalidInputError(
        f"a global batch of {batch} does not split over {world_size} GPUs",
        hint=nearest_multiples(batch, world_size),
        field="recipe.global_batch_size",
    )


def _no_layout(job: Job, wish: Wish) -> InvalidInputError:
    """Return what forbids the wish, or the batch."""
    s = filled(job, wish)
    broken = violations(job, s)
    if not broken:
        named = ", ".join(f"{name}={value}" for name, value in wish.items())
        return InvalidInputError(
            f"no layout meets the wish: {named}",
            hint="leave one of them out; --why NAME=VALUE says what a value meets",
            field="strategy",
        )
    limit, breach = broken[0]
    return InvalidInputError(
        f"{breach.reason} ({limit.code})", hint=breach.advice, field=breach.field
    )


def _nothing_fits(found: Found, wish: Wish | None) -> NothingFitsError:
    on_gpu = np.flatnonzero(np.logical_not(found.table.offloads_optimizer))
    job, row = found.job, found.smallest(on_gpu if len(on_gpu) else np.arange(found.size))
    needed, usable, strategy = found.reserved_bytes[row], job.usable_bytes, found.table.at(row)
    return NothingFitsError(
        f"nothing fits: the smallest layout ({strategy.family}, micro-batch"
        f" {strategy.micro_batch_size}, recompute {strategy.recompute}) needs"
        f" {format_bytes(needed)} per GPU of {format_bytes(usable)},"
        f" {format_bytes(needed - usable)} too much",
        hint="; ".join([*_offload(found), *remedies(job, wish)])
        or "use a smaller model or larger GPUs",
        field="cluster",
    )


def _offload(found: Found) -> list[str]:
    """Return the offload that fits on the GPUs, with what it needs of a node, where that is unknown."""
    fitting = np.flatnonzero(found.fits & found.table.offloads_optimizer)
    if found.job.cluster.host_memory_bytes or not len(fitting):
        return []
    needed = estimate_host_memory(found.job, rows(found.table, fitting)).training_bytes
    s = found.table.at(int(fitting[np.argmin(needed)]))
    return [
        f"--offload {s.offload} would fit, in {format_bytes(np.min(needed))} of each node's memory"
    ]
