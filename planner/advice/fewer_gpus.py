"""The same job on fewer of its GPUs: what is chosen there, and whether it is as fast."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.advice.choice import Contender, best_of_found, contenders
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
from planner.core.errors import InvalidInputError
from planner.domain.job import Job
from planner.search.candidate import Candidate
from planner.search.largest_that_fits import with_gpus
from planner.search.search import TIE
from planner.step_time.compute import training_flops_per_token
from planner.targets import launch

_MOST_UTILISATION = 0.8
"""Of a GPU's peak: no published run is above it."""
_OTHER_STACK = 1.085
"""Times as fast as the choice's own stack that another one is on fewer GPUs, at the most."""


def on_fewer_gpus(stacks: Sequence[Job], situation: Situation) -> dict[str, Candidate]:
    """Return the choice on fewer GPUs, by which they are, where it may be nearly as fast.

    Args:
        stacks: the job on all of them, in each stack.
        situation: of the choice on all of them.
    """
    found = {}
    for name in smaller_jobs(stacks[0]):
        smaller = [smaller_jobs(each)[name] for each in stacks]
        longest = _worth_saying(name) * _seconds(situation)
        is_open = _least_seconds(smaller[0]) <= longest
        # What one GPU takes is told of short runs too, and one node among the trade-offs, however much longer a step.
        if is_open or name in {ONE_GPU, ONE_NODE}:
            own = next(at for at, each in enumerate(stacks) if each is situation.job)
            is_written = bool(launch(situation.job, situation.candidate.strategy).targets)
            best = _best(smaller, own, longest if is_open else 0.0, is_written=is_written)
            if best is not None:
                found[name] = best.candidate
    return found


def _best(
    smaller: Sequence[Job], own: int, longest: float, *, is_written: bool
) -> Contender | None:
    """Return the choice on fewer GPUs; of all stacks, where another than the choice's own may be short enough.

    Args:
        smaller: the job on them, in each stack.
        own: which of them is that of the choice on all.
        longest: seconds of a step that are short enough.
        is_written: whether what has no files is left out in the first stack too.
    """

    def searched(at: int) -> list[Contender]:
        return list(contenders([smaller[at]], {}, written_alone=is_written or at > 0))

    try:
        found = {own: searched(own)}
        if longest and not any(_is_too_long(each, longest) for each in found[own]):
            found |= {at: searched(at) for at in range(len(smaller)) if at != own}
    except InvalidInputError:
        return None
    able = [each for at in sorted(found) for each in found[at]]
    return best_of_found(able, "time") if able else None


def _worth_saying(name: str) -> float:
    """Return how much longer a step may take to be of interest: half of the GPUs must be as fast as all."""
    return TIE if name in {HALF, HALF_OF_EACH} else WORTH_A_NODE


def _is_too_long(best: Contender, longest: float) -> bool:
    """Return whether no other stack makes a step short enough, where memory is no matter."""
    own = best.candidate
    has_memory = own.is_comfortable and not own.strategy.offloads_optimizer
    return has_memory and float(own.step_time.step_seconds) > _OTHER_STACK * longest


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
