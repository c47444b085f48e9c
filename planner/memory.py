"""Peak memory of a rank: one function per term, bytes, for one layout or a table of them.

Memory is followed through the phases of a step (`planner.phases`); the peak is the phase with the
largest sum, and the ledger shows every term as it stands then. All formulas are for ZeRO-style
data parallelism over `shard` ranks.

Notation: P parameters; B parameters of the largest block; O parameters outside the blocks; L blocks;
T = micro_batch_size * sequence_length tokens of a micro-batch; V vocabulary; N shard size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner import activations
from planner.job import Job
from planner.phases import always, at_phase, moments
from planner.strategy import Strategy
from planner.term import Amount, Term, pick, total


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The ledger of one rank, or of a table of layouts."""

    terms: tuple[Term, ...]
    """They sum to `reserved_bytes`; all but `framework_and_context` sum to `peak_bytes`."""
    peak_bytes: Amount
    """What torch.cuda.max_memory_allocated would say."""
    reserved_bytes: Amount
    """What the allocator, NCCL and the CUDA context take from the card."""
    low_bytes: Amount
    high_bytes: Amount
    """The range of `reserved_bytes`."""
    phase: Amount
    """Index into `PHASES` of the moment of the peak."""

    def at(self, row: int) -> "Memory":
        """Return the ledger of one row of a table."""
        return Memory(
            terms=tuple(term.at(row) for term in self.terms),
            peak_bytes=pick(self.peak_bytes, row),
            reserved_bytes=pick(self.reserved_bytes, row),
            low_bytes=pick(self.low_bytes, row),
            high_bytes=pick(self.high_bytes, row),
            phase=pick(self.phase, row),
        )


def estimate_memory(job: Job, s: Strategy) -> Memory:
    """Return the memory ledger of the busiest rank at its peak, in bytes."""
    in_all_phases = tuple(term(job, s) for term in _TERMS)
    phase = np.argmax(total(in_all_phases), axis=0)
    terms = tuple(at_phase(term, phase) for term in in_all_phases)
    peak = total(terms)
    terms = (*terms, _framework_and_context(job, peak))
    reserved = total(terms)
    spread = job.framework.spreads["memory"]
    return Memory(
        terms=terms,
        peak_bytes=peak,
        reserved_bytes=reserved,
        low_bytes=reserved * (1 - spread),
        high_bytes=reserved * (1 + spread),
        phase=phase,
    )


def _parameters(job: Job, s: Strategy) -> Term:
    """Parameters as the optimizer steps them, whole under DDP and ZeRO-1, sharded under ZeRO-2/3.

        bytes = parameter_bytes * P / (N if zero_stage >= 2 else 1)

    Source: Rajbhandari et al., ZeRO, arXiv:1910.02054, section 5; FSDP2 shards parameters from
    ZeRO-2 up (reshard_after_forward only says for how long the gathered copy stays).
    Leaves out: padding of FSDP2's first dimension to a multiple of N.
    """
    shards = s.parameter_shards
    held = job.precision.parameter_bytes * job.model.parameters / shards
    return Term(
        name="parameters",
        amount=always(held),
        formula="{size} B x {parameters:,} parameters / {shards:ranks}",
        numbers={
            "size": job.precision.parameter_bytes,
            "parameters": job.model.parameters,
            "shards": shards,
        },
        source="ZeRO, arXiv:1910.02054, section 5",
    )


def _gradients(job: Job, s: Strategy) -> Term:
    """Gradients, whole under DDP and ZeRO-1, reduce-scattered under ZeRO-2/3.

        bytes = gradient_bytes * P / (N if zero_stage >= 2 else 1)

    They live through the whole step where DDP's buckets hold them (gradient_as_bucket_view) or
    accumulation spans micro-batches; otherwise they appear during backward.
    Source: torch.nn.parallel.DistributedDataParallel; FSDP2 reduce-scatters every micro-batch.
    """
    shards = s.parameter_shards
    whole = job.precision.gradient_bytes * job.model.parameters / shards
    outlives_step = (s.gradient_accumulation_steps > 1) | (
        np.logical_not(s.shards_parameters) & (s.data_parallel_size > 1)
    )
    early = np.where(outlives_step, whole, 0.0)
    return Term(
        name="gradients",
        amount=moments(
            like=early,
            forward=early,
            loss=early,
            last_block=early,
            first_block=whole,
            outer=whole,
            step=whole,
        ),
        formula="{size} B x {parameters:,} parameters / {shards:ranks}",
        numbers={
            "size": job.precision.gradient_bytes,
            "parameters": job.model.parameters,
            "shards": shards,
        },
        source="ZeRO, arXiv:1910.02054, section 5; DistributedDataParallel gradient_as_bucket_view",
    )


def _optimizer_states(job: Job, s: Strategy) -> Term:
    """Adam's two moments, sharded from ZeRO-1 up.

        bytes = optimizer_bytes * P / (N if zero_stage >= 1 else 1)

    Source: ZeRO, arXiv:1910.02054, section 3.1.
    Leaves out: ZeroRedundancyOptimizer deals out whole tensors, so its shares are uneven.
    """
    states = job.precision.optimizer_bytes * job.model.parameters / s.optimizer_shards
    return Term(
        name="optimizer_states",
        amount=always(states),
        formula="{size} B x {parameters:,} parameters / {shards:ranks}",
        numbers={
            "size": job.precision.optimizer_bytes,
            "parameters": job.model.parameters,
            "shards": s.optimizer_shards,
        },
        source="ZeRO, arXiv:1910.02054, section 3.1",
    )


def _optimizer_temporaries(job: Job, s: Strategy) -> Term:
    """What the optimizer's step allocates for its own duration.

        bytes = temporary_fraction * parameter_bytes * P / (N if zero_stage >= 1 else 1)

    Source: the framework record's optimizer section.
    """
    stepped = job.precision.parameter_bytes * job.model.parameters / s.optimizer_shards
    return Term(
        name="optimizer_temporaries",
        amount=moments(step=job.optimizer.temporary_fraction * stepped, like=stepped),
        formula="{fraction:g} x {size} B x {parameters:,} parameters / {shards:ranks}",
        numbers={
            "fraction": job.optimizer.temporary_fraction,
            "size": job.precision.parameter_bytes,
            "parameters": job.model.parameters,
            "shards": s.optimizer_shards,
        },
        source=job.optimizer.source,
    )


def _communication_buffers(job: Job, s: Strategy) -> Term:
    """Gathered parameters and unreduced gradients of ZeRO-2 and ZeRO-3.

        ZeRO-3: g * (O + B) in forward, g * (O + H + 2B) + (g + r) * B around a block's backward
        ZeRO-2: g * P from forward to backward, + g * H + (g + r) * B around a block's backward
        both: (2g + r) * O when the outer gradients are scattered, last

    Notation: g gather_bytes, r reduce_bytes per parameter; H the head's weights, whose gradients
    wait for the embeddings'. FSDP2 prefetches one block ahead, and keeps one block's
    reduce-scatter input until the next one's.
    Source: torch.distributed.fsdp fully_shard, PyTorch 2.13, one block per group.
    Leaves out: DDP's buckets, which are the gradients themselves here, and NCCL's own buffers.
    """
    g, r = job.precision.gather_bytes, job.precision.reduce_bytes
    block = job.model.largest_block_parameters
    outer = job.model.outer_parameters
    head = sum(part.count * part.linear_weights for part in job.model.others)
    is_zero_3 = s.gathers_twice
    is_sharded = np.where(s.shards_parameters, 1.0, 0.0)
    held = np.where(is_zero_3, outer, job.model.parameters) * g
    gradients = (g + r) * block + g * head
    return Term(
        name="communication_buffers",
        amount=moments(
            like=is_sharded,
            forward=is_sharded * (held + g * block),
            loss=is_sharded * held,
            last_block=is_sharded * (held + np.where(is_zero_3, 2 * g * block, 0) + gradients),
            first_block=is_sharded * (g * outer + g * block + gradients),
            outer=is_sharded * (2 * g + r) * outer,
        ),
        formula="{held:bytes} of gathered parameters; around a block's backward {block:bytes} of it"
        " in flight and {gradients:bytes} of gradients not yet scattered",
        numbers={
            "held": is_sharded * held,
            "block": is_sharded * g * block,
            "gradients": is_sharded * gradients,
        },
        source="torch.distributed.fsdp fully_shard, PyTorch 2.13",
    )


def _framework_and_context(job: Job, peak: Amount) -> Term:
    """What the card loses beyond PyTorch's allocations.

        bytes = context + nccl (more than one GPU) + allocator_fraction * peak

    Source: the framework record.
    Leaves out: fragmentation that grows with varying sequence lengths.
    """
    framework = job.framework
    nccl = framework.nccl_bytes if job.cluster.world_size > 1 else 0.0
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


_TERMS: tuple[Callable[[Job, Strategy], Any], ...] = (
    _parameters,
    _gradients,
    _optimizer_states,
    _optimizer_temporaries,
    activations.activations,
    activations.recomputed_block,
    activations.autocast_weight_copies,
    activations.logits_and_loss,
    _communication_buffers,
)
