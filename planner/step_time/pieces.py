"""In how many operations gradients are reduced and parameters gathered: blocks, or buckets."""

import numpy as np

from planner.core.term import Amount
from planner.domain.job import Job
from planner.domain.strategy import Strategy
from planner.parallel.activations import gathers_parameters
from planner.parallel.partition import Stage


def blocks_of(stage: Stage) -> Amount:
    """Return the groups in which FSDP gathers and reduces: one per block, one for the rest."""
    return np.maximum(1, stage.num_blocks + 1)


def reductions(job: Job, s: Strategy, stage: Stage, elements: Amount) -> Amount:
    """Return the operations that reduce so many gradients: blocks of FSDP, else buckets, or one after backward.

    Source: Megatron-LM core/distributed/distributed_data_parallel.py: bucket_size is infinite without overlap.
    """
    is_beside = s.zero_stage >= job.framework.overlap.reduces_gradients_from
    bucketed = np.where(is_beside, buckets(job, s, elements, job.precision.reduce_bytes), 1)
    in_blocks = gathers_parameters(job, s) & job.framework.sharding.gathers_blocks
    return np.where(in_blocks, blocks_of(stage), bucketed)


def gathers(job: Job, s: Strategy, stage: Stage, size_bytes: Amount) -> Amount:
    """Return the operations that gather so many bytes of parameters: blocks, or after ZeRO-1's step its buckets.

    DDP's buckets are of gradients alone, and beside it parameters are gathered in another way.
    """
    each = job.precision.gather_bytes
    in_blocks = gathers_parameters(job, s) | (job.framework.buckets.elements == 0)
    return np.where(in_blocks, blocks_of(stage), buckets(job, s, size_bytes / each, each))


def buckets(job: Job, s: Strategy, elements: Amount, element_bytes: float) -> Amount:
    """Return the buckets that hold so many elements, each closed by the tensor that fills it.

        1 + ceil((E - first) / max(e, r * d, b / w)), or without the 1 where the first is as the others

    Notation: e, r, b, first: elements, elements for each of d data-parallel ranks, bytes, and bytes of the first
    bucket, as the framework's record has them; E elements of w bytes.
    Source: the framework record's buckets.
    Leaves out: that a tensor larger than a bucket is not cut, so that there are fewer.
    """
    size = job.framework.buckets
    most = np.maximum(size.elements, size.elements_per_rank * s.data_parallel_size)
    full = np.maximum(most, size.bytes / element_bytes)
    first = np.minimum(size.first_bytes / element_bytes, elements)
    count: Amount = np.maximum(1, np.ceil((elements - first) / full) + (first > 0))
    return count
