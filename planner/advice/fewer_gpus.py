"""The same job on fewer of its GPUs: what is chosen there, and whether it is as fast."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.advice.choice import Contender, best_of
from planner.advice.rules.base import (
    HALF,
    HALF_OF_EACH,
    LARGER_GPUS,
    ONE_GPU,
    ONE_NODE,
    ONE_PER_SEQUENCE,
    Situation,
)
from planner.advice.rules.communication import WORTH_A_NODE
from planner.domain.job import Job
from planner.search.candidate import Candidate
from planner.search.largest_that_fits import with_gpus
from planner.step_time.compute import training_flops_per_token
from planner.targets import launch

_MOST_UTILISATION = 0.8
"""Of a GPU's peak: no published run is above it."""
_MUCH_LONGER = 1.3
"""Times a step, from which on no other stack makes it as short as on all GPUs."""


def on_fewer_gpus(stacks: Sequence[Job], situation: Situation) -> dict[str, Candidate]:
    """Return the choice on fewer GPUs, by which they are, where it may be nearly as fast.

    Args:
        stacks: the job on all of them, in each stack.
        situation: of the choice on all of them.
    """
    found = {}
    is_written = bool(launch(situation.job, situation.candidate.strategy).targets)
    for name, job in smaller_jobs(stacks[0]).items():
        is_open = _least_seconds(job) <= WORTH_A_NODE * _seconds(situation)
        if not is_open and name not in {ONE_GPU, ONE_NODE}:
            continue
        # What one GPU takes is told of short runs too, and one node among the trade-offs, however much longer a step.
        best = best_of([smaller_jobs(situation.job)[name]], {}, written_alone=is_written)
        if is_open and not (best and _is_much_longer(best, situation)):
            smaller = (smaller_jobs(each)[name] for each in stacks)
            best = best_of(smaller, {}, written_alone=is_written)
        if best is not None:
            found[name] = best.candidate
    return found


def _is_much_longer(best: Contender, situation: Situation) -> bool:
    """Return whether a step is so long that no other stack makes it as short, where memory is no matter."""
    own = best.candidate
    has_memory = own.is_comfortable and not own.strategy.offloads_optimizer
    return has_memory and float(own.step_time.step_seconds) > _MUCH_LONGER * _seconds(situation)


def _seconds(situation: Situation) -> float:
    return float(situation.candidate.step_time.step_seconds)


def _least_seconds(job: Job) -> float:
    """Return what a step takes at the least, by its floating-point operations alone."""
    flops = training_flops_per_token(job) * job.tokens_per_step
    return flops / (_MOST_UTILISATION * job.cluster.world_size * job.peak_flops_per_second)


def smaller_jobs(job: Job) -> dict[str, Job]:
    """Return the job on fewer GPUs, the fewest first, by which they are.

    They are one, one for each sequence of a batch that has fewer than a node has, those of one node, half of them,
    and the larger ones of a mixed node.
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
    elif cluster.nodes > 1 and cluster.nodes % 2 == 0:
        jobs[HALF] = with_gpus(job, cluster.gpus_per_node, cluster.nodes // 2)
    if cluster.gpus_per_node % 2 == 0 and not cluster.larger_gpus:
        jobs[HALF_OF_EACH] = with_gpus(job, cluster.gpus_per_node // 2, cluster.nodes)
    return {name: each for name, each in jobs.items() if _is_first(name, each, jobs)}


def _is_first(name: str, job: Job, jobs: Mapping[str, Job]) -> bool:
    """Return whether no other name stands for the same GPUs before it; the larger ones are not as all are planned."""
    alike = (other for other, each in jobs.items() if _shape(each) == _shape(job))
    return name == LARGER_GPUS or next(alike) == name


def _shape(job: Job) -> tuple[int, int]:
    return job.cluster.gpus_per_node, job.cluster.nodes
