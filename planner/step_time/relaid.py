"""Copies of what sequence parallelism exchanges, where the sequence is not what NCCL gathers along."""

import numpy as np

from planner.core.term import Amount
from planner.domain.job import Job
from planner.domain.strategy import Strategy
from planner.step_time.rates import elementwise_bandwidth


def gathered(job: Job, s: Strategy, exchanged_bytes: Amount) -> Amount:
    """Seconds to copy what was gathered into the order of its sequences.

        seconds = (1 + 1) * bytes / (hbm_fraction * hbm), with several sequences in a micro-batch

    Ranks' parts arrive one after the other, each with its piece of all sequences.
    Source: the framework record's memory_bound section.
    Leaves out: what asynchronous tensor parallelism copies in their place, which its overlapped fraction holds.
    """
    if not job.framework.memory_bound.copies_exchanged:
        return 0.0
    is_copied = (np.asarray(s.micro_batch_size) > 1) & (np.asarray(s.tensor_parallel_size) > 1)
    return np.where(is_copied, 2 * exchanged_bytes / elementwise_bandwidth(job), 0.0)


def to_scatter(job: Job, s: Strategy, exchanged_bytes: Amount) -> Amount:
    """Seconds to copy what will be scattered into the order of the ranks, in the mean of both passes.

        seconds = gathered(bytes), half of it where compiled

    What is scattered in backward are gradients of an input that several matmuls read, added up: compiled, the
    sum is written in that order.
    Source: torch/_inductor/lowering.py cat: a concatenation of up to 8 computed pieces is one kernel with them.
    """
    share = 0.5 if job.recipe.compile else 1.0
    return share * gathered(job, s, exchanged_bytes)
