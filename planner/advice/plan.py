"""Job -> Plan: search every layout, let the rules name what they admit, let the cost model choose."""

import time
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from planner.advice import rules
from planner.advice.alternatives import (
    Alternative,
    ParetoPoint,
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
from planner.catalog import records
from planner.core.errors import InvalidInputError, NothingFitsError
from planner.core.term import Column
from planner.core.units import format_bytes
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import Job
from planner.domain.strategy import Layout, Offload, Recompute, nearest_multiples, rows
from planner.memory.host import estimate_host_memory
from planner.memory.ledger import estimate_memory
from planner.search.candidate import Candidate, estimate
from planner.search.code_changes import num_code_changes
from planner.search.largest_that_fits import remedies, with_gpus
from planner.search.limits import violations
from planner.search.pinned_fields import PinnedFields, simplest_layout
from planner.search.search import SearchResult, search


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOption:
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
class SearchSummary:
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
    pareto: tuple[ParetoPoint, ...]
    """The fastest first."""
    search: SearchSummary
    confidence: Confidence
    options: tuple[ClusterOption, ...] = ()
    """By number of GPUs, those that fit; only where their number was open."""
    notes: tuple[str, ...] = ()
    """Numbers of GPUs that were left out, and why."""


def make_plan(job: Job, pinned: PinnedFields | None = None, objective: str = "time") -> Plan:
    """Return the plan for a job.

    Args:
        job: what is to be trained, on what.
        pinned: values of `Layout` fields that every considered layout must have.
        objective: "time", or "memory" for the smallest layout.

    Raises:
        InvalidInputError: the batch does not split over the GPUs, or no layout has the pinned fields.
        NothingFitsError: no layout fits; says by how much and what would fit.
    """
    started = time.perf_counter()
    result = search(job, pinned)
    if not result.size:
        raise _no_layout(job, pinned or {})
    ordinary = ordinary_rows(result, pinned or {})
    if not len(ordinary):
        raise _nothing_fits(result, pinned)
    situation = _situation(result, ordinary, pinned or {})
    finding, chosen, disagreement = _choose(situation, result, ordinary, pinned, objective)
    situation = replace(situation, candidate=chosen)
    best = best_of_families(result)
    result.candidates(shown(result, ordinary, best))  # one table is quicker than one for each list
    return Plan(
        job=job,
        chosen=chosen,
        findings=(finding, *disagreement, *rules.judge(situation)),
        alternatives=alternatives(result, chosen, best),
        rejected=(*too_large(situation, result, best), *forbidden(job, pinned)),
        pareto=pareto(situation, result, ordinary),
        search=SearchSummary(
            strategies=result.size,
            feasible=int(np.sum(result.fits)),
            seconds=time.perf_counter() - started,
        ),
        confidence=confidence(job, chosen),
    )


def ordinary_rows(result: SearchResult, pinned: PinnedFields) -> Column:
    """Return the rows that may be proposed: those that fit, train as DDP does, and use the GPU.

    Local SGD trains another way and offload is slow, so both are proposed where they are asked for;
    offload also where nothing else fits. A host of unknown memory is taken to have no more per GPU than
    any known machine of several.
    """
    fits = result.fits.copy()
    if "synchronize_every" not in pinned:
        fits &= np.logical_not(result.table.is_local)
    on_gpu = fits & np.logical_not(result.table.offloads_optimizer)
    if "offload" in pinned:
        return np.flatnonzero(fits)
    if np.any(on_gpu) or not np.any(fits):
        return np.flatnonzero(on_gpu)
    offloaded = np.flatnonzero(fits)
    host = estimate_host_memory(result.job, rows(result.table, offloaded))
    most = result.job.cluster.gpus_per_node * _most_host_bytes_per_gpu()
    held: Column = offloaded[host.training_bytes <= (host.available_bytes or most)]
    return held


@cache
def _most_host_bytes_per_gpu() -> float:
    """Return the most that a known machine of several GPUs has for each: a single one may have all of a host."""
    instances = (records.instance(name) for name in records.instance_names())
    return max(
        instance.host_memory_bytes / instance.gpus_per_node
        for instance in instances
        if instance.gpus_per_node > 1
    )


def _situation(result: SearchResult, ordinary: Column, pinned: PinnedFields) -> Situation:
    job = result.job
    fastest = result.candidate(_best_row(result, ordinary, result.weighted_seconds))
    return Situation(
        job=job,
        candidate=fastest,
        smallest_replica=_smallest_replica(job),
        fastest=fastest,
        simplest=_simplest(result, ordinary, pinned),
        on_fewer_gpus=_on_fewer_gpus(job),
        largest_layer_bytes=_largest_layer_bytes(job),
    )


def _simplest(result: SearchResult, ordinary: Column, pinned: PinnedFields) -> Candidate | None:
    """Return the fastest of plain DDP that fits, whatever was pinned."""
    if pinned:
        sizes = {dimension.field: 1 for dimension in DIMENSIONS}
        result = search(result.job, {**sizes, "zero_stage": 0, "synchronize_every": 1})
        ordinary = np.flatnonzero(result.fits)
    plain = ordinary[rules.PLAIN.admits(rows(result.table, ordinary))]
    row = result.best(plain, result.step_seconds)
    return None if row is None else result.candidate(row)


def _best_row(result: SearchResult, among: Column, by: Column) -> int:
    row = result.best(among, by)
    if row is None:
        raise AssertionError("rows that fit have a best")
    return row


def _on_fewer_gpus(job: Job) -> dict[str, Candidate]:
    """Return the fastest layout on one GPU and on one node, where they are fewer and it fits."""
    sizes = {}
    if job.cluster.world_size > 1:
        sizes["one GPU"] = with_gpus(job, 1, 1)
    if job.cluster.nodes > 1:
        sizes["one node"] = with_gpus(job, job.cluster.gpus_per_node, 1)
    fastest = {}
    for name, smaller in sizes.items():
        result = search(smaller)
        ordinary = ordinary_rows(result, {})
        if len(ordinary) and np.any(result.table.offload[ordinary] == Offload.NONE):
            fastest[name] = result.candidate(_best_row(result, ordinary, result.weighted_seconds))
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
    situation: Situation,
    result: SearchResult,
    ordinary: Column,
    pinned: PinnedFields | None,
    objective: str,
) -> tuple[Finding, Candidate, tuple[Finding, ...]]:
    """Return the branch taken, the choice, and the finding where search overrules the tree."""
    finding, preference = rules.branch(situation)
    if objective == "memory":
        return finding, result.candidate(result.smallest(ordinary)), ()
    preferred = ordinary[preference.admits(rows(result.table, ordinary))]
    if not len(preferred):
        _check_batch(situation, preference, pinned or {})
        return finding, situation.fastest, ()
    choice = result.candidate(_best_row(result, preferred, result.weighted_seconds))
    contest = replace(situation, candidate=choice)
    disagreement = DISAGREEMENT.find(contest)
    winner = situation.fastest if rules.follows_search(contest) else choice
    return finding, winner, (disagreement,) if disagreement else ()


def _check_batch(situation: Situation, preference: Preference, pinned: PinnedFields) -> None:
    """Refuse a batch that only dividing the model could split, where the model needs no division.

    It is split so where the framework's own models are divided already, and where it has fewer
    sequences than there are GPUs, in equal groups of which the GPUs must share one.
    """
    job = situation.job
    batch, world_size = job.recipe.global_batch_size, job.cluster.world_size
    is_shared = world_size % batch == 0
    is_divided = not num_code_changes(job, situation.fastest.strategy)
    if preference != rules.PLAIN or pinned or is_shared or is_divided:
        return
    if batch % world_size:
        raise _unsplit(batch, world_size)


def _unsplit(batch: int, world_size: int) -> InvalidInputError:
    return InvalidInputError(
        f"a global batch of {batch} does not split over {world_size} GPUs",
        hint=nearest_multiples(batch, world_size),
        field="recipe.global_batch_size",
    )


def _no_layout(job: Job, pinned: PinnedFields) -> InvalidInputError:
    """Return what forbids the pinned fields, or the batch."""
    s = simplest_layout(job, pinned)
    broken = violations(job, s)
    if not broken:
        named = ", ".join(f"{name}={value}" for name, value in pinned.items())
        return InvalidInputError(
            f"no layout meets the wish: {named}",
            hint="leave one of them out; --why NAME=VALUE says what a value meets",
            field="strategy",
        )
    limit, breach = broken[0]
    return InvalidInputError(
        f"{breach.reason} ({limit.code})", hint=breach.advice, field=breach.field
    )


def _nothing_fits(result: SearchResult, pinned: PinnedFields | None) -> NothingFitsError:
    on_gpu = np.flatnonzero(np.logical_not(result.table.offloads_optimizer))
    job, row = result.job, result.smallest(on_gpu if len(on_gpu) else np.arange(result.size))
    needed, usable, place = result.reserved_bytes[row], job.usable_bytes, "per GPU"
    if needed <= usable:
        row, needed, usable, place = *_least_of_host(result), "of each node's memory"
    strategy = result.table.at(row)
    return NothingFitsError(
        f"nothing fits: the smallest layout ({strategy.family}, micro-batch"
        f" {strategy.micro_batch_size}, recompute {strategy.recompute}) needs"
        f" {format_bytes(needed)} of {format_bytes(usable)} {place},"
        f" {format_bytes(needed - usable)} too much",
        hint="; ".join([*_offload(result), *remedies(job, pinned)])
        or "use a smaller model or larger GPUs",
        field="cluster",
    )


def _least_of_host(result: SearchResult) -> tuple[int, float, float]:
    """Return the row that takes the least of a node's memory of those that fit on the GPUs, and that."""
    on_gpu = np.flatnonzero(result.reserved_bytes <= result.job.usable_bytes)
    host = estimate_host_memory(result.job, rows(result.table, on_gpu))
    needed = np.broadcast_to(host.training_bytes, len(on_gpu))
    row = int(np.argmin(needed))
    return int(on_gpu[row]), float(needed[row]), host.available_bytes


def _offload(result: SearchResult) -> list[str]:
    """Return the offload that fits on the GPUs, with what it needs of a node, where that is unknown."""
    fitting = np.flatnonzero(result.fits & result.table.offloads_optimizer)
    if result.job.cluster.host_memory_bytes or not len(fitting):
        return []
    needed = estimate_host_memory(result.job, rows(result.table, fitting)).training_bytes
    s = result.table.at(int(fitting[np.argmin(needed)]))
    return [
        f"--offload {s.offload} would fit, in {format_bytes(np.min(needed))} of each node's memory"
    ]
