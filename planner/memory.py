"""Peak memory of a rank: one function per term, bytes, for one layout or a table of them.

Memory is followed through six moments of a step (`PHASES`); the peak is the moment with the
largest sum, and the ledger shows every term as it stands then. All formulas are for ZeRO-style
data parallelism over `shard` ranks.

Notation: P parameters; B parameters of one block; O parameters outside the blocks; L blocks;
T = micro_batch_size * sequence_length tokens of a micro-batch; V vocabulary; N shard size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.job import Job
from planner.model import Numerics, Part
from planner.strategy import Strategy
from planner.term import Amount, Column, Term, pick, total

PHASES = (
    "end of forward",
    "backward of the loss",
    "backward of the last block",
    "backward of the first block",
    "reduction of the outer gradients",
    "optimizer step",
)
_SHORT_NAMES = ("forward", "loss", "last_block", "first_block", "outer", "step")


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
    moments = tuple(term(job, s) for term in _TERMS)
    phase = np.argmax(total(moments), axis=0)
    terms = tuple(_at_phase(term, phase) for term in moments)
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


def _moments(*, like: Amount, **amounts: Amount) -> Column:
    """Stack one amount per phase, 0 where none is given: [phase] or [phase, layout].

    Args:
        like: an amount with the shape of the layouts.
        amounts: by the short names of `_SHORT_NAMES`.
    """
    parts = np.broadcast_arrays(like, *(amounts.get(name, 0.0) for name in _SHORT_NAMES))
    return np.stack([np.asarray(part, dtype=float) for part in parts[1:]])


def _always(amount: Amount) -> Column:
    """Stack an amount that every phase holds."""
    return _moments(like=amount, **dict.fromkeys(_SHORT_NAMES, amount))


def _at_phase(term: Term, phase: Amount) -> Term:
    amount = np.take_along_axis(term.amount, np.expand_dims(phase, 0), axis=0)[0]
    return Term(
        name=term.name,
        amount=amount if amount.ndim else amount.item(),
        formula=term.formula,
        numbers=term.numbers,
        source=term.source,
        spread=term.spread,
    )


def _tokens(job: Job, s: Strategy) -> Amount:
    return s.micro_batch_size * job.recipe.sequence_length


def _numerics(job: Job, s: Strategy) -> Amount:
    """Which numerics each layout computes in: fully_shard computes in the gathered dtype."""
    return np.where(
        s.shards_parameters, job.precision.sharded_numerics, job.precision.replicated_numerics
    )


def _by_numerics(job: Job, s: Strategy, amount: Callable[[Numerics], float]) -> Amount:
    """Evaluate an amount for the numerics that each layout computes in."""
    return np.array([amount(numerics) for numerics in Numerics])[_numerics(job, s)]


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
        amount=_always(held),
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
        amount=_moments(
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
        amount=_always(states),
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
        amount=_moments(step=job.optimizer.temporary_fraction * stepped, like=stepped),
        formula="{fraction:g} x {size} B x {parameters:,} parameters / {shards:ranks}",
        numbers={
            "fraction": job.optimizer.temporary_fraction,
            "size": job.precision.parameter_bytes,
            "parameters": job.model.parameters,
            "shards": s.optimizer_shards,
        },
        source=job.optimizer.source,
    )


def _kept_per_token(job: Job, part: Part, numerics: Numerics) -> float:
    """Bytes per token that a part keeps, with the attention implementation's share.

    Fused attention keeps a log-sum-exp per head; materialised scores keep themselves, and keys and
    values expanded to all heads.
    """
    kept = part.kept_bytes_per_token(numerics)
    attention = part.attention
    if attention is None:
        return kept
    if not attention.materialises_scores(job.recipe.attention, numerics):
        return kept + 4 * attention.num_heads
    scores = attention.num_heads * job.recipe.sequence_length
    expanded = 2 * (attention.query_size - attention.key_value_size)
    element_bytes = 4 if numerics == Numerics.FP32 else 2
    return kept + attention.eager_bytes_per_score[numerics] * scores + element_bytes * expanded


def _activations(job: Job, s: Strategy) -> Term:
    """What autograd keeps from forward to backward, the logits left out.

        bytes = T * (L * block + outer), or with recompute="full": T * (L * checkpoint + outer)

    Notation: block, outer: the kept bytes per token of `Part`; checkpoint: one hidden state.
    Source: operation counts in planner/architectures/kept.py; Chen et al., arXiv:1604.06174.
    Leaves out: transient outputs that no operation keeps; alignment to 512 bytes.
    """
    tokens = _tokens(job, s)
    block = job.model.block
    one_block = _block_bytes(job, s)
    others = [part for part in job.model.parts if part is not block]
    outer = tokens * _by_numerics(
        job, s, lambda n: sum(part.count * _kept_per_token(job, part, n) for part in others)
    )
    hidden = job.model.hidden_size
    checkpoint = tokens * _by_numerics(job, s, lambda n: hidden * (2 if n == Numerics.HALF else 4))
    is_recomputed = s.recompute == "full"
    per_block = np.where(is_recomputed, checkpoint, one_block)
    blocks = block.count * per_block
    return Term(
        name="activations",
        amount=_moments(
            like=blocks,
            forward=blocks + outer,
            loss=blocks + outer,
            last_block=blocks,
            first_block=per_block,
        ),
        formula="{tokens:,} tokens x {count} blocks x {each:bytes}/token + {outer:bytes} outside them",
        numbers={
            "tokens": tokens,
            "count": block.count,
            "each": per_block / tokens,
            "outer": outer,
        },
        source="autograd's saved tensors, operation by operation (planner/architectures/kept.py)",
    )


def _block_bytes(job: Job, s: Strategy) -> Amount:
    block = job.model.block
    return _tokens(job, s) * _by_numerics(job, s, lambda n: _kept_per_token(job, block, n))


def _recomputed_block(job: Job, s: Strategy) -> Term:
    """One block's activations, while backward has it recomputed.

        bytes = T * block, with recompute="full"

    Source: Chen et al., arXiv:1604.06174, section 4.
    """
    working = np.where(s.recompute == "full", _block_bytes(job, s), 0.0)
    return Term(
        name="recomputed_block",
        amount=_moments(like=working, last_block=working, first_block=working),
        formula="{tokens:,} tokens x {each:bytes}/token of one block",
        numbers={"tokens": _tokens(job, s), "each": working / _tokens(job, s)},
        source="Chen et al., arXiv:1604.06174, section 4",
    )


def _autocast_weight_copies(job: Job, s: Strategy) -> Term:
    """The 16-bit copy of every weight matrix that autocast makes and backward needs.

        bytes = 2 * (weights of the blocks and the head)

    With recompute="full" the blocks' copies die with the autocast cache at the end of forward.
    Source: torch.autocast caches weight casts until its context ends; autograd keeps them.
    """
    is_autocast = _numerics(job, s) == Numerics.AUTOCAST
    everything = np.where(is_autocast, 2.0 * job.model.linear_weights, 0.0)
    one_block = np.where(is_autocast, 2.0 * job.model.block.linear_weights, 0.0)
    outer = everything - job.model.block.count * one_block
    is_recomputed = s.recompute == "full"
    backward = np.where(is_recomputed, one_block, everything - outer)
    return Term(
        name="autocast_weight_copies",
        amount=_moments(
            like=everything,
            forward=everything,
            loss=np.where(is_recomputed, outer, everything),
            last_block=backward,
            first_block=one_block,
        ),
        formula="2 B x {weights:,} matmul weights, while autocast or autograd holds them",
        numbers={"weights": job.model.linear_weights},
        source="torch.autocast weight cache, PyTorch 2.13",
    )


def _logits_and_loss(job: Job, s: Strategy) -> Term:
    """Logits, their fp32 copy, log-softmax and gradients around the cross-entropy.

        bytes = T * V * (4 + 6) at the end of forward (4 + 4 in fp32), T * V * (4 + 8) in its backward

    The 4 is the log-softmax that backward needs; forward also holds the logits in compute dtype
    and in fp32, backward the gradients into and out of the log-softmax.
    Source: transformers' ForCausalLMLoss over torch.nn.functional.cross_entropy.
    Leaves out: fused or chunked cross-entropy.
    """
    has_loss = job.model.task != "none"
    logits = _tokens(job, s) * job.model.vocab_size * (1.0 if has_loss else 0.0)
    forward = _by_numerics(job, s, lambda n: 8.0 if n == Numerics.FP32 else 10.0)
    return Term(
        name="logits_and_loss",
        amount=_moments(like=logits, forward=forward * logits, loss=12.0 * logits),
        formula="{tokens:,} tokens x {vocabulary:,} words x {forward:.0f} B after forward,"
        " 12 B in the loss's backward",
        numbers={
            "tokens": _tokens(job, s),
            "vocabulary": job.model.vocab_size,
            "forward": forward,
        },
        source="transformers ForCausalLMLoss (fp32 upcast) over torch cross_entropy",
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
    block = job.model.block.parameters
    outer = job.model.outer_parameters
    head = job.model.linear_weights - job.model.block.count * job.model.block.linear_weights
    is_zero_3 = s.gathers_twice
    is_sharded = np.where(s.shards_parameters, 1.0, 0.0)
    held = np.where(is_zero_3, outer, job.model.parameters) * g
    gradients = (g + r) * block + g * head
    return Term(
        name="communication_buffers",
        amount=_moments(
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
    _activations,
    _recomputed_block,
    _autocast_weight_copies,
    _logits_and_loss,
    _communication_buffers,
)
