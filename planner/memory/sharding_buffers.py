"""What sharding and the framework take beyond tensors of the model's own: bytes per rank.

Notation: P parameters of a stage on a rank, B those of its largest block and O those outside the
blocks, after tensor and expert parallelism; g, r bytes per parameter when gathered and reduced.
"""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from planner.core.term import (
    NOTHING,
    Amount,
    Expression,
    Term,
    Truth,
    bytes_each,
    count,
    either,
    greatest,
    largest,
    only_where,
    percent,
    plain,
    ranks,
    size,
)
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import Job
from planner.domain.model import Model, Part
from planner.domain.strategy import Recompute, Strategy
from planner.memory.phases import PhasedTerm
from planner.parallel.activations import gathers_parameters
from planner.parallel.adapters import (
    adapter_parameters,
    gathered_part_bytes,
    trained_parameters,
)
from planner.parallel.partition import (
    Stage,
    before_blocks,
    dense_shards,
    occurrences,
    rank_parameters,
    rank_weights,
    stage_parameters,
)


def communication_buffers(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """Buffers of sharding and of gradient reduction, as the framework has them."""
    if job.recipe.lora is not None and job.framework.sharding.gathers_blocks:
        return _gathered_adapters(job, s, stage)
    if not job.framework.sharding.gathers_blocks:
        return _flat_buckets(job, s, stage)
    if job.framework.sharding.gathers_outer_parts:
        return _gathered_groups(job, s, stage)
    return _gathered_blocks(job, s, stage)


def _flat_buckets(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """The flat buffers of DeepSpeed: one to reduce gradients in, and what ZeRO-3 has gathered.

        ZeRO-3: r * E always, + g * min(P, max(L, W)) but in the optimizer's step
        ZeRO-2: r * E in backward, whatever the size of the model
        both: + r * V around the last block's backward, where V > E
        ZeRO-0 and 1: r * min(P, E) when the gradients are reduced, after backward

    Notation: E reduce_bucket_size, L stage3_max_live_parameters, W the largest matrix and V the head's, elements.
    A gradient that is larger than the buffer is reduced from where it is, when the next one comes.
    Source: DeepSpeed 0.18, runtime/zero/stage_1_and_2.py (ipg_buffer) and stage3.py; contiguous
    gradients, a single buffer, nothing for the all-gather of ZeRO-1 and 2, which is in place.
    Leaves out: the second buffer of overlap_comm under ZeRO-2; parameters below
    stage3_param_persistence_threshold, which stay gathered.
    """
    live = max(job.framework.sharding.live_elements, largest_matrix(job.model))
    held = np.minimum(sum(stage_parameters(job, s, stage)), live)
    reduced = bytes_each(job.precision.reduce_bytes)
    trained = np.minimum(sum(trained_parameters(job, s, stage)), job.framework.buckets.elements)
    bucket = reduced * count(job.framework.buckets.elements, "elements of the reduce bucket")
    head = _head_parameters(job, s, stage)
    is_large = head > job.framework.buckets.elements
    waiting = only_where(
        is_large & s.shards_gradients, reduced * count(head, "of the head, larger than the bucket")
    )
    late = only_where(s.data_parallel_size > 1, reduced * count(trained, "gradients in the bucket"))
    gathered = bytes_each(job.precision.gather_bytes) * count(held, "gathered parameters")
    in_step = only_where(s.gathers_twice, bucket)
    in_forward = only_where(s.gathers_twice, bucket + gathered)
    in_backward = only_where(s.shards_gradients, either(s.gathers_twice, bucket + gathered, bucket))
    return PhasedTerm(
        name="communication_buffers",
        forward=in_forward,
        loss=in_backward,
        last_block=in_backward + waiting,
        first_block=in_backward,
        outer=either(s.shards_gradients, in_backward, late),
        step=in_step,
        source=job.framework.sharding.source,
    )


def _head_parameters(job: Job, s: Strategy, stage: Stage) -> Amount:
    if job.recipe.lora is not None:
        return 0.0
    behind = [
        rank_weights(part, s) * stage.is_last
        for part in job.model.others
        if part not in before_blocks(job.model)
    ]
    return greatest(behind)


def _gathered_blocks(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """Gathered parameters and unreduced gradients of ZeRO-2 and ZeRO-3.

        ZeRO-3: g * (O + B) in forward, g * (O + H + 2B) + (g + r) * B around a block's backward
        ZeRO-2: g * (P + B) in forward, g * P until backward, then + g * H + (g + r) * B around a block's
        both: r * O + max(g * O, g * H + r * O / N) when the outer gradients are scattered, last; + g * O
        + r * B where the head is tied to the embeddings
        a divided model around its loss: 0 under ZeRO-3, g * P under ZeRO-2
        replicas of shards: what `_all_reduced` says

    Notation: H the head's weights, whose gradients wait for the embeddings'. FSDP2 prefetches one
    block ahead, the last one when the loss's backward begins, and keeps one block's reduce-scatter
    input until the next one's.
    Source: torch.distributed.fsdp fully_shard, PyTorch 2.13, one block per group.
    Leaves out: DDP's buckets, which are the gradients themselves here, and NCCL's own buffers.
    """
    is_zero_3, is_gathered = s.gathers_twice, gathers_parameters(job, s)
    if not np.any(is_gathered):
        return PhasedTerm(name="communication_buffers", source=_FULLY_SHARD)
    others = [(part, n) for part, n in occurrences(job.model, stage) if not part.is_block]
    outside = _parameters_of(s, others)
    head = sum((n * rank_weights(part, s) for part, n in others), 0.0)
    is_tied = any(layer.is_tied for part, _ in others for layer in part.linears)
    g, r = bytes_each(job.precision.gather_bytes), bytes_each(job.precision.reduce_bytes)
    block = count(_largest_block(job, s), "parameters of a block")
    outer = count(outside, "parameters outside the blocks")
    everything = count(sum(stage_parameters(job, s, stage)), "gathered parameters")
    held = g * either(is_zero_3, outer, everything)
    unreduced = (g + r) * block + g * count(head, "of the head")
    ahead = only_where(is_zero_3, g * block)
    at_loss = only_where(np.logical_not(is_zero_3), held)
    is_apart = np.logical_and(_is_divided(s), stage.is_last)
    is_apart = np.logical_and(is_apart, job.framework.sharding.frees_outer_before_loss)
    own = ranks(dense_shards(s))
    arriving = g * count(head, "of the head") + only_where(_is_added(job, s), r * outer / own)
    scattered = (
        r * outer + largest(g * outer, arriving) + (g * outer + r * block if is_tied else NOTHING)
    )
    before = sum(stage_parameters(job, s, stage)) - outside
    return PhasedTerm(
        name="communication_buffers",
        forward=only_where(is_gathered, held + g * block),
        loss=only_where(is_gathered, either(is_apart, at_loss, held + ahead)),
        last_block=only_where(is_gathered, held + _TWO * ahead + unreduced),
        first_block=only_where(
            is_gathered,
            g * outer
            + g * block
            + unreduced
            + _all_reduced(job, s, before - _largest_block(job, s)),
        ),
        outer=only_where(is_gathered, scattered + _all_reduced(job, s, before)),
        note=_GATHERED_NOTE,
        source=_FULLY_SHARD,
    )


def _all_reduced(job: Job, s: Strategy, elements: Amount) -> Expression:
    """Return the bytes of gradients that replicas of shards have summed, held until backward ends.

        r * elements / N where they are not the gradients themselves

    Source: torch.distributed.fsdp _fully_shard, PyTorch 2.13: each group's AllReduceState, let go of by
    finalize_backward.
    """
    is_hybrid = (
        s.is_hybrid & _is_added(job, s) & np.logical_not(job.framework.sharding.flat_parameters)
    )
    reduced = bytes_each(job.precision.reduce_bytes) * count(
        np.maximum(0.0, elements), "parameters already reduced"
    )
    return only_where(is_hybrid, reduced / ranks(dense_shards(s)))


def _is_added(job: Job, s: Strategy) -> Truth:
    is_cast = job.precision.reduce_bytes != job.precision.gradient_bytes
    found: Truth = (np.asarray(s.gradient_accumulation_steps) > 1) | is_cast
    return found


def _gathered_groups(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """Gathered parameters and unreduced gradients where embeddings and head are their own groups.

        ZeRO-3: g * (H + B) in forward, g * (H + 2B) + (g + r) * max(H, B) around the head's and the
        last block's backward, g * (E + B) + (g + r) * B around the first block's
        ZeRO-2: g * P until the last block's backward
        both: (2g + r) * E when the embeddings' gradients are scattered, last
        replicas of shards: what `_all_reduced` says

    Notation: E, H parameters before the blocks and after them. The head stays gathered from its
    forward to its backward; the embeddings do not.
    Source: torchtitan models/llama3 infra/parallelize.py, apply_fsdp.
    Leaves out: as `_gathered_blocks`.
    """
    others = [(part, n) for part, n in occurrences(job.model, stage) if not part.is_block]
    first = before_blocks(job.model)
    g, r = bytes_each(job.precision.gather_bytes), bytes_each(job.precision.reduce_bytes)
    is_zero_3, is_gathered = s.gathers_twice, gathers_parameters(job, s)
    block = count(_largest_block(job, s), "parameters of a block")
    embeddings = count(
        _parameters_of(s, [each for each in others if each[0] in first]), "of the embeddings"
    )
    head = count(
        _parameters_of(s, [each for each in others if each[0] not in first]), "of the head"
    )
    everything = count(sum(stage_parameters(job, s, stage)), "gathered parameters")
    held, ahead = g * either(is_zero_3, head, everything), only_where(is_zero_3, g * block)
    before = sum(stage_parameters(job, s, stage)) - embeddings.value
    return PhasedTerm(
        name="communication_buffers",
        forward=only_where(is_gathered, held + ahead),
        loss=only_where(is_gathered, held),
        last_block=only_where(is_gathered, held + _TWO * ahead + (g + r) * largest(head, block)),
        first_block=only_where(
            is_gathered,
            g * embeddings
            + g * block
            + (g + r) * block
            + _all_reduced(job, s, before - _largest_block(job, s)),
        ),
        outer=only_where(
            is_gathered, g * embeddings + (g + r) * embeddings + _all_reduced(job, s, before)
        ),
        note=_GATHERED_NOTE,
        source=job.framework.sharding.source,
    )


def _gathered_adapters(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """Frozen weights that ZeRO-2 and ZeRO-3 gather, as they are stored, and adapters' gradients.

        ZeRO-3: O + B in forward, O + 2B + (g + r) * A around a block's backward
        ZeRO-2: O + all blocks until then
        FSDP1: O + B throughout

    Notation: O, B bytes outside the blocks and of the largest block, with its adapters; A adapters'
    parameters of a block; g, r bytes of a gradient, and of one being reduced.
    Source: torch.distributed.fsdp fully_shard, one block per group; quantised weights travel as
    they are (bitsandbytes' bnb_4bit_quant_storage). FSDP1 fetches the next block from a hook on the last
    one's output, which reentrant checkpoints compute without a graph.
    """
    trained = max((adapter_parameters(job, part) for part in job.model.blocks), default=0)
    of_parts = [
        (part, n * gathered_part_bytes(job, s, part)) for part, n in occurrences(job.model, stage)
    ]
    of_block = greatest(gathered_part_bytes(job, s, part) for part in job.model.blocks)
    outer = size(
        sum((held for part, held in of_parts if not part.is_block), 0.0), "outside the blocks"
    )
    block = size(of_block, "of a block")
    everything = size(sum((held for _, held in of_parts), 0.0), "of gathered weights")
    is_zero_3, is_gathered = s.gathers_twice, gathers_parameters(job, s)
    held = either(is_zero_3, outer, everything)
    is_ahead = is_zero_3 & np.logical_not(job.framework.sharding.flat_parameters)
    current, ahead = only_where(is_zero_3, block), only_where(is_ahead, block)
    g, r = bytes_each(job.precision.gather_bytes), bytes_each(job.precision.reduce_bytes)
    gradients = (g + r) * count(trained, "adapters' parameters of a block")
    return PhasedTerm(
        name="communication_buffers",
        forward=only_where(is_gathered, held + ahead),
        loss=only_where(is_gathered, held + ahead),
        last_block=only_where(is_gathered, held + current + ahead + gradients),
        first_block=only_where(is_gathered, outer + block + gradients),
        note="weights gathered as they are stored, gradients until they are scattered",
        source=job.framework.sharding.source,
    )


def largest_matrix(model: Model) -> int:
    """Return the elements of the model's largest matrix or table, one expert at a time."""
    matrices = (
        layer.weights // layer.num_experts for part in model.parts for layer in part.linears
    )
    return max(*matrices, *(size for part in model.parts for size in part.tables.values()))


def _parameters_of(s: Strategy, parts: Sequence[tuple[Part, Amount]]) -> Amount:
    return sum((n * sum(rank_parameters(part, s)) for part, n in parts), 0.0)


def _is_divided(s: Strategy) -> Truth:
    return reduce(np.logical_or, (s.uses(each) for each in DIMENSIONS))


def _largest_block(job: Job, s: Strategy) -> Amount:
    return greatest(sum(rank_parameters(part, s)) for part in job.model.blocks)


def communicators(job: Job, s: Strategy) -> Amount:
    """Return over how many groups of ranks a rank communicates: one for each size above 1.

    Source: torch.distributed.device_mesh makes one process group a dimension.
    Leaves out: groups of ranks that only exchange a few numbers.
    """
    sizes = (
        s.data_parallel_replicate_size,
        s.data_parallel_shard_size,
        *(s.size(each) for each in DIMENSIONS),
    )
    groups = sum(np.where(np.asarray(size) > 1, 1.0, 0.0) for size in sizes)
    return np.maximum(groups, 1.0 if job.cluster.world_size > 1 else 0.0)


def framework_and_context(job: Job, s: Strategy, peak: Amount) -> Term:
    """What the card loses beyond PyTorch's allocations.

        bytes = context + nccl * communicators + f * peak
        f = allocator_fraction, or what the card has left where that is more than least_fraction

    Before it gives up, the allocator frees what it holds and no tensor needs, and asks again: what it reserves beyond
    the peak is taken where there is room, and given back where there is not. Around recompute blocks that are
    partly in use stay.
    Source: c10/cuda/CUDACachingAllocator.cpp, release_cached_blocks; the framework record.
    Leaves out: fragmentation that grows with varying sequence lengths.
    """
    framework = job.framework
    device, groups = framework.device, communicators(job, s)
    taken = device.context_bytes + groups * device.nccl_bytes
    room = (job.usable_bytes - taken) / np.maximum(peak, 1.0) - 1.0
    least = np.where(
        s.recompute == Recompute.NONE, device.least_fraction, device.allocator_fraction
    )
    left = np.minimum(room, device.allocator_fraction)
    fraction = np.where(room < least, device.allocator_fraction, left)
    return Term(
        name="framework_and_context",
        arithmetic=size(device.context_bytes, "of CUDA context")
        + plain(groups) * size(device.nccl_bytes, "of NCCL")
        + percent(fraction) * size(peak, "in the allocator"),
        source=framework.device.source,
        spread=framework.uncertainty.memory,
    )


_TWO = plain(2.0)
_FULLY_SHARD = "torch.distributed.fsdp fully_shard, PyTorch 2.13"
_GATHERED_NOTE = "weights while they are gathered, gradients until they are scattered"
