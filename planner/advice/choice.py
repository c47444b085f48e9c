"""Job -> the layout to run: the tree names what it admits, the search may overrule it."""

from collections.abc import Iterator
from dataclasses import field, replace

import numpy as np

from planner.advice import rules
from planner.advice.refusal import no_layout, nothing_fits, unsplit
from planner.advice.rules import DISAGREEMENT, verdict
from planner.advice.rules.base import (
    LARGER_GPUS,
    ONE_GPU,
    ONE_NODE,
    ONE_PER_SEQUENCE,
    Finding,
    Preference,
    Situation,
)
from planner.catalog.choice import trusted_lead
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.term import Column
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import Job
from planner.domain.strategy import Layout, Recompute, rows
from planner.hardware.usual_host import usual_host_bytes
from planner.memory.host import estimate_host_memory
from planner.memory.ledger import estimate_memory
from planner.search.candidate import Candidate
from planner.search.largest_that_fits import with_gpus
from planner.search.pinned_fields import PinnedFields
from planner.search.search import SearchResult, search


@frozen
class Choice:
    """The layout that is proposed, and what it was chosen from."""

    result: SearchResult
    ordinary: Column
    """Rows that may be proposed."""
    situation: Situation
    """With the choice as its candidate."""
    findings: tuple[Finding, ...]
    """The branch of the tree, and where the search has another opinion."""
    offloaded: Column = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Rows beside the ordinary ones, of which the choice is one that offloads although others fit."""

    @property
    def proposable(self) -> Column:
        """Return all rows that the choice was made from."""
        if not len(self.offloaded):
            return self.ordinary
        return np.union1d(self.ordinary, self.offloaded)


def choose(job: Job, pinned: PinnedFields | None = None, objective: str = "time") -> Choice:
    """Return the layout to run of all that are legal.

    Raises:
        InvalidInputError: the batch does not split over the GPUs, or no layout has the pinned fields.
        NothingFitsError: no layout fits; says by how much and what would fit.
    """
    result = searched(job, pinned)
    ordinary = ordinary_rows(result, pinned or {})
    if not len(ordinary):
        raise nothing_fits(result, pinned, lambda other: chosen_layout(other, pinned or {}))
    choice = choose_from(result, ordinary, pinned or {}, objective)
    return or_offloaded(choice, pinned or {}, objective)


def searched(job: Job, pinned: PinnedFields | None = None) -> SearchResult:
    """Return every legal layout of a job, estimated.

    Raises:
        InvalidInputError: there is none.
    """
    result = search(job, pinned)
    if not result.size:
        raise no_layout(job, pinned or {})
    return result


def choose_from(
    result: SearchResult, ordinary: Column, pinned: PinnedFields, objective: str = "time"
) -> Choice:
    """Return the layout to run of a search.

    Args:
        result: every legal layout, estimated.
        ordinary: rows that may be proposed; one at least.
        pinned: values that every row has.
        objective: "time", or "memory" for the smallest layout.
    """
    is_for_memory = objective == "memory"
    situation = replace(_situation(result, ordinary, pinned), is_for_memory=is_for_memory)
    branch, preference = rules.branch(situation)
    if is_for_memory:
        smallest = result.candidate(result.smallest(ordinary))
        contest = replace(situation, candidate=smallest)
        return Choice(result=result, ordinary=ordinary, situation=contest, findings=(branch,))
    contest = _contest(situation, result, ordinary, pinned, preference)
    disagreement = DISAGREEMENT.find(contest)
    winner = contest.fastest if verdict.follows_search(contest) else contest.candidate
    return Choice(
        result=result,
        ordinary=ordinary,
        situation=replace(contest, candidate=winner),
        findings=(branch, *([disagreement] if disagreement else [])),
    )


def or_offloaded(choice: Choice, pinned: PinnedFields, objective: str = "time") -> Choice:
    """Return the choice, or one that offloads where that is faster whatever the errors of both are.

    What the host's memory and CPUs take is known the worst, so the longest step of its range must be
    shorter than the shortest of the choice's. A choice without room may not run at all: there one with
    room needs only a lead that is believed of any two layouts. Where a replica fits, nothing is offloaded.
    """
    situation, result = choice.situation, choice.result
    chosen = situation.candidate
    is_settled = chosen.strategy.offloads_optimizer or situation.fits_on_one_gpu
    if "offload" in pinned or objective != "time" or is_settled:
        return choice
    longest = _longest_offloaded(result, chosen)
    faster = result.fits & (result.step_seconds < longest) & result.table.offloads_optimizer
    if "synchronize_every" not in pinned:
        faster &= np.logical_not(result.table.is_local)
    if not chosen.is_comfortable:
        faster &= result.is_comfortable
    held = np.flatnonzero(_held(result, faster & result.is_writable, may_offload=False))
    if not len(held):
        return choice
    offloaded = choose_from(result, held, pinned)
    step_time = offloaded.situation.candidate.step_time
    seconds = step_time.high_seconds if chosen.is_comfortable else step_time.step_seconds
    if seconds >= longest:
        return choice
    return replace(
        offloaded,
        ordinary=choice.ordinary,
        offloaded=held,
        situation=replace(offloaded.situation, on_gpu=chosen),
    )


def _longest_offloaded(result: SearchResult, chosen: Candidate) -> float:
    if chosen.is_comfortable:
        return float(chosen.step_time.low_seconds)
    return float(chosen.step_time.step_seconds) / (1 + trusted_lead(result.job.framework.name))


def _contest(
    situation: Situation,
    result: SearchResult,
    ordinary: Column,
    pinned: PinnedFields,
    preference: Preference,
) -> Situation:
    """Return the situation of the tree's choice against the best that the search may follow."""
    preferred = ordinary[preference.admits(rows(result.table, ordinary))]
    if not len(preferred):
        _check_batch(situation, preference, pinned)
        return situation
    weighted = result.weighted_seconds
    row = _best_row(result, preferred, weighted)
    rival = _best_row(result, _rivals(result, ordinary, preferred, row, preference), weighted)
    return replace(
        situation,
        candidate=result.candidate(row),
        fastest=result.candidate(rival),
        lead=float(weighted[row] / weighted[rival]) - 1,
    )


def ordinary_rows(result: SearchResult, pinned: PinnedFields) -> Column:
    """Return the rows that may be proposed: those that fit, train as DDP does, and use the GPU.

    Local SGD trains another way and offload is slow, so both are proposed where they are asked for;
    offload also where nothing else fits. A layout that no target can write is proposed only where
    none that fits can be written.
    """
    fits = result.fits.copy()
    if "synchronize_every" not in pinned:
        fits &= np.logical_not(result.table.is_local)
    tiers = _tiers(result, fits, may_offload="offload" in pinned)
    return next((np.flatnonzero(tier) for tier in tiers if np.any(tier)), np.flatnonzero(fits)[:0])


def _tiers(result: SearchResult, fits: Column, *, may_offload: bool) -> Iterator[Column]:
    """Yield what may be proposed, the best first; what hosts hold is asked where no GPU will do."""
    on_gpu = fits if may_offload else fits & np.logical_not(result.table.offloads_optimizer)
    yield on_gpu & result.is_writable
    yield _held(result, fits & result.is_writable, may_offload=may_offload)
    yield on_gpu
    yield _held(result, fits, may_offload=may_offload)


def _held(result: SearchResult, fits: Column, *, may_offload: bool) -> Column:
    """Return which of the layouts a node's memory holds, or that of such machines where it is unknown."""
    among = np.flatnonzero(fits)
    if may_offload or not len(among):
        return fits
    host = estimate_host_memory(result.job, rows(result.table, among))
    available = host.available_bytes or usual_host_bytes(result.job.cluster)
    held = np.zeros_like(fits)
    held[among] = host.training_bytes <= available
    return held


def _situation(result: SearchResult, ordinary: Column, pinned: PinnedFields) -> Situation:
    job = result.job
    fastest = result.candidate(_best_row(result, ordinary, result.weighted_seconds))
    situation = Situation(
        job=job,
        candidate=fastest,
        smallest_replica_bytes=_known_or_estimated(result, smallest_replica(job)),
        fastest=fastest,
        simplest=_simplest(result, ordinary, pinned),
        asked=_asked(pinned),
        has_spare_context=result.has_spare_context,
    )
    if situation.fits_on_one_gpu:
        return situation
    return replace(situation, largest_layer_bytes=_largest_layer_bytes(job))


def _asked(pinned: PinnedFields) -> frozenset[str]:
    sizes = {each.field for each in DIMENSIONS if pinned.get(each.field, 1) != 1}
    return frozenset({*sizes, *(["zero_stage"] if pinned.get("zero_stage") else [])})


def _simplest(result: SearchResult, ordinary: Column, pinned: PinnedFields) -> Candidate | None:
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


def _rivals(
    result: SearchResult, ordinary: Column, preferred: Column, best: int, preference: Preference
) -> Column:
    """Return the rows that may be followed against the tree, those that it prefers among them.

    Where a replica fits, ZeRO and experts that are dealt over the data-parallel ranks are followed for
    what their memory buys alone: less recompute than the best replica has. A stage that the framework
    has at a flag is followed for any lead.
    """
    is_open = preference.may_be_overruled_by(rows(result.table, ordinary))
    if preference == rules.PLAIN:
        recompute, stages = result.table.recompute[ordinary], result.table.zero_stage[ordinary]
        by_flag = result.job.framework.capabilities.zero_by_flag
        is_flag = (stages > 0) & (stages <= by_flag) & (result.num_dimensions[ordinary] == 0)
        is_open &= (
            is_flag | np.isin(ordinary, preferred) | (recompute < result.table.recompute[best])
        )
    return ordinary[is_open]


def _check_batch(situation: Situation, preference: Preference, pinned: PinnedFields) -> None:
    """Refuse a batch that only dividing the model could split, where the model needs no division.

    It is split so where the framework's own models are divided already, and where it has fewer
    sequences than there are GPUs, in equal groups of which the GPUs must share one; but never for a
    micro-batch that was asked for.
    """
    job, s = situation.job, situation.fastest.strategy
    batch, world_size = job.recipe.global_batch_size, job.cluster.world_size
    micro_batch = pinned.get("micro_batch_size", 1)
    is_undivided = micro_batch > 1 and not pinned.keys() & {each.field for each in DIMENSIONS}
    if preference == rules.PLAIN and is_undivided and batch % (world_size * micro_batch):
        raise unsplit(batch, world_size, micro_batch)
    changing = job.framework.capabilities.changes_model
    is_divided = not any(s.uses(each) and each.name in changing for each in DIMENSIONS)
    if preference != rules.PLAIN or pinned or world_size % batch == 0 or is_divided:
        return
    if batch % world_size:
        raise unsplit(batch, world_size)


def smallest_replica(job: Job) -> Layout:
    """Return the layout with a whole replica on each GPU that needs the least memory."""
    world_size = job.cluster.world_size
    return Layout(
        data_parallel_replicate_size=world_size,
        micro_batch_size=1,
        gradient_accumulation_steps=max(1, job.recipe.global_batch_size // world_size),
        recompute=Recompute.FULL,
    )


def _known_or_estimated(result: SearchResult, layout: Layout) -> float:
    known = result.reserved_bytes_of(layout)
    return reserved_bytes(result.job, layout) if known is None else known


def reserved_bytes(job: Job, layout: Layout) -> float:
    """Return what a layout reserves of a GPU."""
    return float(estimate_memory(job, layout).reserved_bytes)


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
    return reserved_bytes(of_one_token, layers)


def chosen_layout(
    job: Job, pinned: PinnedFields, objective: str = "time", *, written_alone: bool = False
) -> Candidate | None:
    """Return the choice for a job; None where nothing fits, without a search for what would help."""
    try:
        result = search(job, pinned, written_alone=written_alone)
        ordinary = ordinary_rows(result, pinned) if result.size else np.array([])
        if not len(ordinary):
            return None
        choice = choose_from(result, ordinary, pinned, objective)
        choice = or_offloaded(choice, pinned, objective)
    except InvalidInputError:
        return None
    return choice.situation.candidate


def on_fewer_gpus(job: Job) -> dict[str, Candidate]:
    """Return the choice on fewer GPUs, by which they are, where it fits on them without a host."""
    chosen = {name: chosen_layout(smaller, {}) for name, smaller in smaller_jobs(job).items()}
    return {
        name: candidate
        for name, candidate in chosen.items()
        if candidate is not None and not candidate.strategy.offloads_optimizer
    }


def smaller_jobs(job: Job) -> dict[str, Job]:
    """Return the job on fewer GPUs, the fewest first, by which they are.

    They are one, one for each sequence of a batch that has fewer than a node has, those of one node, and the
    larger ones of a mixed node.
    """
    cluster, batch = job.cluster, job.recipe.global_batch_size
    jobs: dict[str, Job] = {}
    if cluster.world_size > 1:
        jobs[ONE_GPU] = with_gpus(job, 1, 1)
    if 1 < batch < cluster.gpus_per_node:
        jobs[ONE_PER_SEQUENCE] = with_gpus(job, batch, 1)
    if cluster.nodes > 1 and cluster.gpus_per_node > 1:
        jobs[ONE_NODE] = with_gpus(job, cluster.gpus_per_node, 1)
    if cluster.larger_gpus:
        jobs[LARGER_GPUS] = replace(job, cluster=cluster.larger_gpus)
    return jobs
