"""What tensor-parallel ranks exchange at both ends of the model, where each holds its part of the vocabulary.

Notation: t tensor parallel size; a T h bytes of a micro-batch's hidden state; T its tokens.
"""

import numpy as np

from planner.collectives import operations
from planner.core.term import Amount
from planner.domain.job import Job
from planner.domain.model import Part
from planner.domain.strategy import Strategy
from planner.parallel.activations import tokens
from planner.step_time.communication import (
    activation_bytes,
    scattered,
    summed,
    tensor_group,
)

_SUMS_OF_LOSS = 3
"""Of each token: its largest logit, the sum of the exponentials, its own word's logit."""
_FP32_BYTES = 4


def exchanged(job: Job, s: Strategy, part: Part) -> Amount:
    """Seconds of both passes through a part outside the trunk, less what hides behind the head's weight gradients.

        embeddings  all_reduce(a T h) in forward; under sequence parallelism reduce_scatter, and all_gather in backward
        head        all_reduce(a T h) in backward; under sequence parallelism all_gather, and reduce_scatter in backward
        loss        3 * all_reduce(4 T)

    Each rank looks up the words that it has, and gives the gradient of its own logits alone. Embeddings beside
    frozen weights have no backward.
    Source: Shoeybi et al., arXiv:1909.08053, section 3; Megatron-LM core/tensor_parallel/layers.py
    VocabParallelEmbedding and ColumnParallelLinear, cross_entropy.py; torchtitan and the written scripts:
    RowwiseParallel embeddings, a ColwiseParallel head, loss_parallel.
    """
    if part.is_block or np.all(np.asarray(s.tensor_parallel_size) == 1):
        return 0.0
    found: Amount = 0.0
    if part.split_tables:
        found = found + _of_embeddings(job, s)
    if any(layer.most_splits > 1 and not layer.cuts_inputs for layer in part.linears):
        found = found + _of_head(job, s) + _of_loss(job, s)
    return found


def _of_embeddings(job: Job, s: Strategy) -> Amount:
    parted = scattered(job, s)
    if job.recipe.lora is None:
        size = activation_bytes(job, s)
        parted = parted + operations.all_gather(job.cluster, tensor_group(s), size)
    return np.where(s.sequence_parallel, parted, summed(job, s))


def _of_head(job: Job, s: Strategy) -> Amount:
    cluster, group, size = job.cluster, tensor_group(s), activation_bytes(job, s)
    seen = size * job.model.share_with_logits
    hidden = 0.0 if job.recipe.tensor_parallel_overlap is False else 1.0
    exposed = 1 - hidden * job.framework.overlap.tensor_fraction
    whole = exposed * operations.all_reduce(cluster, group, seen)
    parted = operations.all_gather(cluster, group, seen)
    parted = parted + exposed * operations.reduce_scatter(cluster, group, seen)
    return np.where(s.sequence_parallel, parted, whole)


def _of_loss(job: Job, s: Strategy) -> Amount:
    """Seconds of the sums that a loss of split logits takes; none where the ranks hold all logits."""
    if not job.framework.activations.splits_loss or not job.model.has_token_loss:
        return 0.0
    each = _FP32_BYTES * tokens(job, s) * job.model.share_with_logits
    return _SUMS_OF_LOSS * operations.all_reduce(job.cluster, tensor_group(s), each)
