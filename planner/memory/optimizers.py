"""What an optimizer keeps of each kind of tensor, and what its step allocates. Bytes per rank.

Most keep a multiple of the parameters; the rest go by tensor: Adafactor keeps rows and columns,
8-bit Adam leaves small tensors in fp32, Muon leaves what is no matrix of a block to AdamW.
"""

import numpy as np

from planner.core.term import Amount, Expression, count, greatest
from planner.domain.job import Job
from planner.domain.model import Part
from planner.domain.optimizer import Optimizer
from planner.domain.strategy import Strategy
from planner.parallel.activations import gathers_parameters
from planner.parallel.adapters import (
    Tensor,
    largest_trained_tensor,
    trained_parameters,
    trained_tensors,
)
from planner.parallel.partition import Stage, dense_shards, occurrences, rank_parameters


def state_bytes_per_parameter(job: Job, s: Strategy, stage: Stage) -> Amount:
    """Return the optimizer's states over the trained parameters of a stage, bytes each.

        bytes = sum(states of each tensor) / sum(its elements)

    Notation: states of a tensor of n elements of e bytes: state_tensors * e * n + state_bytes * n;
    (rows + columns) * e where factored; small_state_bytes * n below small_elements.
    Source: the framework record's optimizer section.
    Leaves out: tensors that sharding makes small; which ranks hold the small ones.
    """
    optimizer, element = job.optimizer, job.precision.stepped_bytes
    if not _goes_by_tensor(optimizer):
        return optimizer.state_tensors * element + optimizer.state_bytes
    held: Amount = 0.0
    elements: Amount = 0.0
    for part, times in occurrences(job.model, stage):
        share = times * _share(job, part, s)
        for tensor in trained_tensors(job, part):
            held = held + share * tensor.count * tensor_states(optimizer, tensor, element)
            elements = elements + share * tensor.count * tensor.elements
    return held / np.maximum(1.0, elements)


def _share(job: Job, part: Part, s: Strategy) -> Amount:
    if job.recipe.lora is not None or not part.parameters:
        return 1.0
    return sum(rank_parameters(part, s)) / part.parameters


def _goes_by_tensor(optimizer: Optimizer) -> bool:
    return bool(
        optimizer.is_factored
        or optimizer.small_elements
        or optimizer.outer_state_tensors is not None
    )


def tensor_states(optimizer: Optimizer, tensor: Tensor, element_bytes: float) -> float:
    """Return the bytes of states that an optimizer keeps for one tensor."""
    if tensor.elements < optimizer.small_elements:
        return optimizer.small_state_bytes * tensor.elements
    if optimizer.is_factored and tensor.columns > 1:
        factors = tensor.rows + tensor.columns
        return (
            optimizer.state_tensors * element_bytes * factors
            + optimizer.state_bytes * tensor.elements
        )
    outer = optimizer.outer_state_tensors
    tensors = optimizer.state_tensors if tensor.is_inner or outer is None else outer
    return (tensors * element_bytes + optimizer.state_bytes) * tensor.elements


def largest_temporary(job: Job, s: Strategy, stage: Stage) -> Amount:
    """Return the elements that a step allocates which goes tensor by tensor.

        elements = temporary_tensors * min(L, stage's parameters) / N

    Notation: L elements of the largest tensor that is stepped.
    Source: the framework record's optimizer section.
    """
    shards = np.where(s.shards_optimizer, dense_shards(s), 1)
    largest = np.minimum(largest_trained_tensor(job), sum(trained_parameters(job, s, stage)))
    return job.optimizer.temporary_tensors * largest / shards


def stepped_at_once(job: Job, s: Strategy, stage: Stage) -> Expression:
    """Return the elements that have gradients where each is stepped as backward reaches it.

    fully_shard reduces a block's gradients together, and those outside the blocks; hooks of what is
    whole fire tensor by tensor.
    """
    parts = occurrences(job.model, stage)
    of_block = greatest(sum(rank_parameters(part, s)) for part in job.model.blocks)
    outside = sum(
        (n * sum(rank_parameters(part, s)) for part, n in parts if not part.is_block), 0.0
    )
    of_group = np.maximum(of_block, outside) / dense_shards(s)
    whole = np.minimum(largest_trained_tensor(job), of_block + outside)
    return count(
        np.where(gathers_parameters(job, s), of_group, whole), "elements that are stepped at once"
    )
