"""What a form of choices asks for -> the estimate of its layout, or of the nearest that can be."""

from math import gcd

import numpy as np

from planner.advice.choice import contender
from planner.core.errors import PlannerError
from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.request.schema import Request, resolve
from planner.request.sections import StrategyRequest
from planner.request.stacks import usual_stack
from planner.request.strategy import pinned_fields, requested_layout
from planner.search.candidate import Candidate, estimate
from planner.search.largest_that_fits import with_gpus
from planner.search.search import search

_KEPT = ("zero_stage", "recompute", "offload")
"""Of a layout whose sizes cannot stay: what is left to look through takes some milliseconds."""


def moved(held: Request, asked: Request) -> tuple[Job, Candidate]:
    """Return the estimate of the layout that a form holds, or of the nearest to it that runs what is asked.

    Args:
        held: what is asked of that layout.
        asked: it without the layout.

    Raises:
        PlannerError: no layout at all runs it.
    """
    try:
        job = _job(held)
        return job, estimate(job, _layout(held, asked, job))
    except PlannerError as error:
        return _nearest(held, asked, error)


def _job(held: Request) -> Job:
    """Return the job, on the part of each node that the layout is on."""
    job = resolve(held, allow_paths=False).job
    cluster = job.cluster
    gpus, left = divmod(held.max_gpus or cluster.world_size, cluster.nodes)
    return job if left or gpus >= cluster.gpus_per_node else with_gpus(job, gpus, cluster.nodes)


def _layout(held: Request, asked: Request, job: Job) -> Layout:
    """Return the layout; where nobody asked for its micro-batch, with the largest part that divides a rank's share."""
    said = held.strategy or StrategyRequest()
    wanted = said.micro_batch_size or 1
    if asked.strategy and asked.strategy.micro_batch_size:
        return requested_layout(said, job)
    smallest = requested_layout(said.model_copy(update={"micro_batch_size": None}), job)
    share = job.recipe.global_batch_size // int(smallest.data_parallel_size)
    return requested_layout(said.model_copy(update={"micro_batch_size": gcd(share, wanted)}), job)


def _nearest(held: Request, asked: Request, error: PlannerError) -> tuple[Job, Candidate]:
    """Return the best layout of other sizes, else of anything that was not asked for."""
    try:
        job = resolve(held, allow_paths=False).job
    except PlannerError:
        job = usual_stack(asked, allow_paths=False).job
    wished = {"micro_batch_size": 1, **pinned_fields(asked.strategy)}
    kept = {name: each for name, each in pinned_fields(held.strategy).items() if name in _KEPT}
    for pinned in ({**kept, **wished}, wished):
        found = search(job, pinned)
        if found.size:
            best = contender(found, pinned)
            smallest = found.smallest(np.arange(found.size))
            return job, best.candidate if best else found.candidate(smallest)
    raise error
