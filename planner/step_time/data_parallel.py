"""What data parallelism adds to a step: gradients reduced, parameters gathered, as far as nothing hides it.

Notation: A gradient accumulation steps; F, Bw forward and backward seconds of a micro-batch on the
slowest stage.
"""

import numpy as np

from planner.collectives import operations
from planner.core.frozen import frozen
from planner.core.term import Amount, Term, plain, ranks, rate, seconds, size
from planner.domain.cluster import Group
from planner.domain.job import Job
from planner.domain.strategy import Strategy
from planner.parallel.activations import gathers_parameters
from planner.parallel.adapters import gathered_stage_bytes, trained_parameters
from planner.parallel.partition import Stage, stage_parameters
from planner.step_time import communication, pieces
from planner.step_time.terms import StepTerm


@frozen
class OverlappedExchange:
    """A collective of data parallelism that runs beside the compute, as far as it can."""

    times: Amount
    """In a step."""
    size_bytes: Amount
    """Of the tensors, each time."""
    seconds: Amount
    exposed: Amount

    @property
    def hidden(self) -> Amount:
        """Seconds of a step that the compute covers."""
        return self.times * np.maximum(0.0, self.seconds - self.exposed)


def reduction(job: Job, s: Strategy, stage: Stage, backward: Amount) -> OverlappedExchange:
    """How the gradients' reduction fits behind backward.

        exposed = max(tail, reduction - hidden), once per step or once per micro-batch
        local SGD: the parameters' average / K, after the step

    Notation: tail: the last bucket, and no less than a block, which no compute follows; hidden: overlap * Bw, less
    what ZeRO-3's gather takes of it on the same link; K synchronize_every.
    """
    whole = communication.reduce_gradients(job, s, stage)
    gathered = np.where(s.gathers_twice, communication.gather_parameters(job, s, stage), 0.0)
    overlaps = np.where(s.zero_stage >= job.framework.overlap.reduces_gradients_from, 1.0, 0.0)
    hidden = overlaps * np.maximum(0.0, _hidden(job, backward) - gathered)
    trained = sum(trained_parameters(job, s, stage))
    calls = pieces.reductions(job, s, stage, trained)
    tail = whole / np.minimum(pieces.blocks_of(stage), calls)
    exposed = np.maximum(tail, whole - hidden)
    every = s.zero_stage >= job.framework.sharding.reduces_every_micro_batch_from
    times = np.where(every, s.gradient_accumulation_steps, 1)
    reduced_bytes = job.precision.reduce_bytes * trained
    if np.all(np.asarray(s.synchronize_every) == 1):
        return OverlappedExchange(
            times=times, size_bytes=reduced_bytes, seconds=whole, exposed=exposed
        )
    is_local = s.synchronize_every > 1
    average = communication.average_parameters(job, s, stage) / s.synchronize_every
    averaged = job.precision.parameter_bytes * trained
    return OverlappedExchange(
        times=np.where(is_local, 1, times),
        size_bytes=np.where(is_local, averaged / s.synchronize_every, reduced_bytes),
        seconds=np.where(is_local, average, whole),
        exposed=np.where(is_local, average, exposed),
    )


def reduction_term(job: Job, s: Strategy, reduced: OverlappedExchange) -> Term:
    """What the gradients' reduction adds to the step after hiding behind backward.

    Source: planner/collectives/operations.py; overlap: the framework record.
    """
    everyone = s.data_parallel_size * s.context_parallel_size
    pace = reduced.size_bytes / np.maximum(reduced.seconds, 1e-12)
    return Term(
        name=StepTerm.GRADIENT_REDUCTION,
        arithmetic=plain(reduced.times) * seconds(reduced.exposed, "exposed"),
        note=(
            "in all ",
            seconds(reduced.seconds),
            ": ",
            size(reduced.size_bytes),
            " over ",
            ranks(everyone),
            " at ",
            rate(pace),
        ),
        source=source(job),
    )


def gather(
    job: Job, s: Strategy, stage: Stage, forward: Amount, backward: Amount
) -> OverlappedExchange:
    """How gathering parameters fits behind compute: ZeRO-2 and 3 every micro-batch, ZeRO-1 after.

        whole parameters: an all-gather once, exposed; N / (N - 1) times that by broadcasts
        ZeRO-2 of fully_shard: A * max(first, gather - overlap * F)
        ZeRO-3: that and A * max(0, gather - overlap * Bw)

    Notation: first: the first block's, which nothing hides; N ranks, of whose links broadcasts use one after the other
    in full, where a gather uses all of them for (N - 1) / N of the parameters.
    Source: ZeRO, arXiv:1910.02054, section 7; fully_shard prefetches one block ahead.
    """
    once = communication.gather_parameters(job, s, stage)
    in_forward = _beside_forward(job, stage, once, forward)
    in_backward = np.maximum(0.0, once - _hidden(job, backward))
    each = in_forward + np.where(s.gathers_twice, in_backward, 0.0)
    is_gathered = gathers_parameters(job, s)
    after_step = np.where(s.shards_optimizer, once * _broadcasts(job, s), 0.0)
    return OverlappedExchange(
        times=np.where(is_gathered, s.gradient_accumulation_steps, 1),
        size_bytes=_gathered_bytes(job, s, stage),
        seconds=np.where(is_gathered, np.where(s.gathers_twice, 2 * once, once), after_step),
        exposed=np.where(is_gathered, each, after_step),
    )


def gathered_in_forward(job: Job, s: Strategy, stage: Stage, forward: Amount) -> Amount:
    """Return the seconds by which gathering parameters holds up one forward; 0 where they are whole."""
    once = communication.gather_parameters(job, s, stage)
    return np.where(gathers_parameters(job, s), _beside_forward(job, stage, once, forward), 0.0)


def _beside_forward(job: Job, stage: Stage, once: Amount, forward: Amount) -> Amount:
    first = once / pieces.blocks_of(stage)
    exposed: Amount = np.maximum(first, once - _hidden(job, forward))
    return exposed


def _broadcasts(job: Job, s: Strategy) -> Amount:
    shards = np.maximum(2, np.asarray(s.data_parallel_shard_size))
    return np.where(job.framework.sharding.broadcasts_stepped, shards / (shards - 1), 1.0)


def _gathered_bytes(job: Job, s: Strategy, stage: Stage) -> Amount:
    if job.recipe.lora is not None:
        return gathered_stage_bytes(job, s, stage)
    return job.precision.gather_bytes * sum(stage_parameters(job, s, stage))


def gather_term(job: Job, gathered: OverlappedExchange) -> Term:
    """What gathering parameters adds to the step after hiding behind compute."""
    return Term(
        name=StepTerm.PARAMETER_GATHER,
        arithmetic=plain(gathered.times) * seconds(gathered.exposed, "exposed"),
        note=("in all ", seconds(gathered.seconds)),
        source=source(job),
    )


def slowdown_term(
    job: Job, s: Strategy, reduced: OverlappedExchange, gathered: OverlappedExchange
) -> Term:
    """What compute loses to the collectives beside it: SMs and memory bandwidth.

        seconds = slowdown * (hidden reduction + hidden gather)

    Source: `data/calibration/interconnect.toml`, overlap_slowdown.
    """
    hidden = seconds(reduced.hidden + gathered.hidden, "of communication beside compute")
    return Term(
        name=StepTerm.OVERLAP_SLOWDOWN,
        arithmetic=plain(communication.slowdown(job, s)) * hidden,
        source="data/calibration/interconnect.toml, overlap_slowdown",
    )


def _hidden(job: Job, computed: Amount) -> Amount:
    return job.framework.overlap.backward_fraction * computed


def _everyone(job: Job) -> Group:
    return Group(ranks=job.cluster.world_size)


def source(job: Job) -> str:
    """Return what the seconds of data parallelism's collectives are drawn from."""
    return operations.source(job.cluster, _everyone(job))
