"""What sharding and the framework take beyond tensors of the model's own: bytes per rank.

Notation: P parameters of a stage on a rank, B those of its largest block and O those outside the
blocks, after tensor and expert parallelism; g, r bytes per parameter when gathered and reduced.
"""

from functools import reduce

import numpy as np

from planner.core.term import Amount, Term
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import Job
from planner.domain.model import Model, Part
from planner.domain.strategy import Strategy
from planner.parallel.activations import shards_parameters
from planner.parallel.adapters import gathered_blocks, trained_parameters
from planner.parallel.partition import (
    Stage,
    before_blocks,
    occurrences,
    rank_parameters,
    rank_weights,
    stage_parameters,
)
from planner.parallel.phases import moments


def communication_buffers(job: Job, s: Strategy, at: Stage) -> Term:
    """Buffers of sharding and of gradient reduction, as the framework has them."""
    if job.recipe.lora is not None and job.framework.gathers_blocks:
        return gathered_blocks(job, s, at)
    if not job.framework.gathers_blocks:
        return _flat_buckets(job, s, at)
    if job.framework.gathers_outer_parts:
        return _gathered_groups(job, s, at)
    return _gathered_blocks(job, s, at)


def _flat_buckets(job: Job, s: Strategy, at: Stage) -> Term:
    """The flat buffers of DeepSpeed: one to reduce gradients in, and what ZeRO-3 has gathered.

        ZeRO-3: r * E always, + g * min(P, max(L, W)) but in the optimizer's step
        ZeRO-2: r * E in backward, whatever the size of the model
        ZeRO-0 and 1: r * min(P, E) when the gradients are reduced, after backward

    Notation: E reduce_bucket_size, L stage3_max_live_parameters and W the largest matrix, elements.
    Source: DeepSpeed 0.18, runtime/zero/stage_1_and_2.py (ipg_buffer) and stage3.py; contiguous
    gradients, a single buffer, nothing for the all-gather of ZeRO-1 and 2, which is in place.
    Leaves out: the second buffer of overlap_comm under ZeRO-2; parameters below
    stage3_param_persistence_threshold, which stay gathered.
    """
    g, r = job.precision.gather_bytes, job.precision.reduce_bytes
    everything = sum(stage_parameters(job, s, at))
    trained = sum(trained_parameters(job, s, at))
    bucket = r * job.framework.bucket_elements
    is_zero_3 = np.where(s.gathers_twice, 1.0, 0.0)
    is_whole = np.where(s.shards_parameters, 1.0, 0.0)
    is_reduced = np.where(s.data_parallel_size > 1, 1.0, 0.0)
    late = is_reduced * np.minimum(bucket, r * trained)
    live = max(job.framework.live_elements, largest_tensor(job.model))
    gathered = is_zero_3 * g * np.minimum(everything, live)
    early, whole = is_zero_3 * bucket, is_whole * bucket
    return Term(
        name="communication_buffers",
        amount=moments(
            like=late,
            forward=early + gathered,
            loss=whole + gathered,
            last_block=whole + gathered,
            first_block=whole + gathered,
            outer=np.where(s.shards_parameters, whole + gathered, late),
            step=early,
        ),
        formula="{gathered:bytes} of gathered parameters; gradients are reduced in a buffer of"
        " {bucket:bytes}",
        numbers={"gathered": gathered, "bucket": np.where(s.shards_parameters, whole, late)},
        source=job.framework.sources["sharding"],
    )


def _gathered_blocks(job: Job, s: Strategy, at: Stage) -> Term:
    """Gathered parameters and unreduced gradients of ZeRO-2 and ZeRO-3.

        ZeRO-3: g * (O + B) in forward, g * (O + H + 2B) + (g + r) * B around a block's backward
        ZeRO-2: g * P from forward to backward, + g * H + (g + r) * B around a block's backward
        both: (g + r) * O when the outer gradients are scattered, last; + g * O + r * B where the
        head is tied to the embeddings

    Notation: H the head's weights, whose gradients wait for the embeddings'. FSDP2 prefetches one
    block ahead, the last one when the loss's backward begins, and keeps one block's reduce-scatter
    input until the next one's.
    Source: torch.distributed.fsdp fully_shard, PyTorch 2.13, one block per group.
    Leaves out: DDP's buckets, which are the gradients themselves here, and NCCL's own buffers.
    """
    block, everything, unreduced = _gathered_sizes(job, s, at)
    others = [(part, n) for part, n in occurrences(job.model, at) if not part.is_block]
    outer = sum(n * _gathered_bytes(job, s, part) for part, n in others)
    head = job.precision.gather_bytes * sum(n * rank_weights(part, s) for part, n in others)
    is_zero_3 = s.gathers_twice
    is_gathered = np.where(shards_parameters(job, s), 1.0, 0.0)
    held = np.where(is_zero_3, outer, everything)
    gradients = unreduced * block + head
    is_tied = any(layer.is_tied for part, _ in others for layer in part.linears)
    tied = outer + (unreduced - 1) * block if is_tied else 0.0
    return Term(
        name="communication_buffers",
        amount=moments(
            like=is_gathered,
            forward=is_gathered * (held + block),
            loss=is_gathered * (held + np.where(is_zero_3, block, 0)),
            last_block=is_gathered * (held + np.where(is_zero_3, 2 * block, 0) + gradients),
            first_block=is_gathered * (outer + block + gradients),
            outer=is_gathered * (unreduced * outer + tied),
        ),
        formula="{held:bytes} of gathered parameters; around a block's backward {block:bytes} of it"
        " in flight and {gradients:bytes} of gradients not yet scattered",
        numbers={
            "held": is_gathered * held,
            "block": is_gathered * block,
            "gradients": is_gathered * gradients,
        },
        source="torch.distributed.fsdp fully_shard, PyTorch 2.13",
    )


def _gathered_groups(job: Job, s: Strategy, at: Stage) -> Term:
    """Gathered parameters and unreduced gradients where embeddings and head are their own groups.

        ZeRO-3: g * (H + B) in forward, g * (H + 2B) + (g + r) * max(H, B) around the head's and the
        last block's backward, g * (E + B) + (g + r) * B around the first block's
        ZeRO-2: g * P until the last block's backward
        both: (2g + r) * E when the embeddings' gradients are scattered, last

    Notation: E, H parameters before the blocks and after them. The head stays gathered from its
    forward to its backward; the embeddings do not.
    Source: torchtitan models/llama3 infra/parallelize.py, apply_fsdp.
    Leaves out: as `_gathered_blocks`.
    """
    block, everything, unreduced = _gathered_sizes(job, s, at)
    first, is_zero_3 = before_blocks(job.model), s.gathers_twice
    others = [(part, n) for part, n in occurrences(job.model, at) if not part.is_block]
    embeddings = sum(n * _gathered_bytes(job, s, part) for part, n in others if part in first)
    head = sum(n * _gathered_bytes(job, s, part) for part, n in others if part not in first)
    is_gathered = np.where(shards_parameters(job, s), 1.0, 0.0)
    held = is_gathered * np.where(is_zero_3, head, everything)
    in_flight = is_gathered * np.where(is_zero_3, block, 0.0)
    gradients = is_gathered * unreduced * np.maximum(head, block)
    return Term(
        name="communication_buffers",
        amount=moments(
            like=held,
            forward=held + in_flight,
            loss=held,
            last_block=held + 2 * in_flight + gradients,
            first_block=is_gathered * (embeddings + (1 + unreduced) * block),
            outer=is_gathered * (1 + unreduced) * embeddings,
        ),
        formula="{held:bytes} of gathered parameters; around a block's backward {block:bytes} of it"
        " in flight and {gradients:bytes} of gradients not yet scattered",
        numbers={"held": held, "block": in_flight, "gradients": gradients},
        source=job.framework.sources["sharding"],
    )


def largest_tensor(model: Model) -> int:
    """Return the elements of the model's largest matrix or table, one expert at a time."""
    matrices = (
        layer.weights // layer.num_experts for part in model.parts for layer in part.linears
    )
    return max(*matrices, *(size for part in model.parts for size in part.tables.values()))


def _gathered_bytes(job: Job, s: Strategy, part: Part) -> Amount:
    """Return g times the parameters of one occurrence of a part."""
    return job.precision.gather_bytes * sum(rank_parameters(part, s))


def _gathered_sizes(job: Job, s: Strategy, at: Stage) -> tuple[Amount, Amount, float]:
    """Return the bytes of the largest block and of the stage when gathered, and (g + r) / g."""
    g, r = job.precision.gather_bytes, job.precision.reduce_bytes
    block = reduce(np.maximum, (_gathered_bytes(job, s, part) for part in job.model.blocks), 0.0)
    return block, g * sum(stage_parameters(job, s, at)), (g + r) / g


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

        bytes = context + nccl * communicators + allocator_fraction * peak

    Source: the framework record.
    Leaves out: fragmentation that grows with varying sequence lengths.
    """
    framework = job.framework
    nccl = framework.nccl_bytes * communicators(job, s)
    return Term(
        name="framework_and_context",
        amount=framework.context_bytes + nccl + framework.allocator_fraction * peak,
        formula="{context:bytes} CUDA context + {nccl:bytes} NCCL"
        " + {fraction:percent} of {peak:bytes} in the allocator",
        numbers={
            "context": framework.context_bytes,
            "nccl": nccl,
            "fraction": framework.allocator_fraction,
            "peak": peak,
        },
        source=framework.sources["device"],
        spread=framework.spreads["memory"],
    )
