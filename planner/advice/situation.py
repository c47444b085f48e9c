"""What the rules judge of a search: the choice beside a whole replica, the largest layer, and plain DDP."""

from dataclasses import replace

import numpy as np

from planner.advice import rules
from planner.advice.rules.base import Situation
from planner.core.term import Column
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import Job
from planner.domain.strategy import Layout, Recompute, rows
from planner.memory.ledger import estimate_memory
from planner.search.candidate import Candidate
from planner.search.pinned_fields import PinnedFields
from planner.search.search import SearchResult, search


def situation_of(result: SearchResult, among: Column, best: int, pinned: PinnedFields) -> Situation:
    """Return what is known of a job before its layout is chosen.

    Args:
        result: every legal layout, estimated.
        among: rows that may be proposed.
        best: the best of them.
        pinned: values that every row has.
    """
    job, candidate = result.job, result.candidate(best)
    situation = Situation(
        job=job,
        candidate=candidate,
        smallest_replica_bytes=min(
            _known_or_estimated(result, replace(smallest_replica(job), recompute=each))
            # Compiled, a small model needs less without recompute.
            for each in (Recompute.FULL, Recompute.NONE)
        ),
        admitted=candidate,
        simplest=_simplest(result, among, pinned),
        asked=_asked(pinned),
    )
    if situation.fits_on_one_gpu:
        return situation
    return replace(situation, largest_layer_bytes=_largest_layer_bytes(job))


def _asked(pinned: PinnedFields) -> frozenset[str]:
    sizes = {each.field for each in DIMENSIONS if pinned.get(each.field, 1) != 1}
    return frozenset({*sizes, *(["zero_stage"] if pinned.get("zero_stage") else [])})


def _simplest(result: SearchResult, among: Column, pinned: PinnedFields) -> Candidate | None:
    if pinned:
        sizes = {each.field: 1 for each in DIMENSIONS}
        result = search(result.job, {**sizes, "zero_stage": 0, "synchronize_every": 1})
        among = np.flatnonzero(result.fits)
    plain = among[rules.PLAIN.admits(rows(result.table, among))]
    row = result.best(plain, result.step_seconds)
    return None if row is None else result.candidate(row)


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
