"""What forward leaves behind for backward: activations, weight copies, logits. Bytes per rank.

Notation: L blocks; T = micro_batch_size * sequence_length tokens of a micro-batch; V vocabulary.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import numpy as np

from planner.job import Job
from planner.model import Numerics, Part
from planner.phases import moments
from planner.strategy import Strategy
from planner.term import Amount, Term


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


def _kept_per_token(job: Job, part: Part, numerics: Numerics) -> float:
    """Bytes per token that a part keeps, with the attention implementation's share.

    Fused attention keeps a log-sum-exp per head; materialised scores keep themselves, and keys and
    values expanded to all heads.
    """
    kept = part.kept_bytes_per_token(numerics)
    attention = part.attention
    if attention is None:
        return kept
    element_bytes = 4 if numerics == Numerics.FP32 else 2
    if not attention.materialises_scores(job.recipe.attention, numerics):
        return kept + 4 * attention.num_heads + element_bytes * attention.retained_size
    scores = attention.num_heads * part.tokens(job.recipe.sequence_length)
    expanded = 2 * (attention.query_size - attention.key_value_size)
    return kept + attention.eager_bytes_per_score[numerics] * scores + element_bytes * expanded


def activations(job: Job, s: Strategy) -> Term:
    """What autograd keeps from forward to backward, the logits left out.

        bytes = blocks + outer, or with recompute="full": L * T * checkpoint + outer

    Notation: blocks, outer: tokens times kept bytes per token, over the parts inside and outside
    the trunk; checkpoint: one hidden state.
    Source: operation counts in planner/architectures/kept.py; Chen et al., arXiv:1604.06174.
    Leaves out: transient outputs that no operation keeps; alignment to 512 bytes.
    """
    model, tokens = job.model, _tokens(job, s)
    kept = _kept(job, s, model.blocks)
    outer = _kept(job, s, model.others)
    hidden = model.hidden_size
    checkpoint = tokens * _by_numerics(job, s, lambda n: hidden * (2 if n == Numerics.HALF else 4))
    is_recomputed = s.recompute == "full"
    blocks = np.where(is_recomputed, model.num_blocks * checkpoint, kept)
    first = np.where(is_recomputed, checkpoint, _largest_block(job, s))
    return Term(
        name="activations",
        amount=moments(
            like=blocks,
            forward=blocks + outer,
            loss=blocks + outer,
            last_block=blocks,
            first_block=first,
        ),
        formula="{tokens:,} tokens x {count} blocks x {each:bytes}/token + {outer:bytes} outside them",
        numbers={
            "tokens": tokens,
            "count": model.num_blocks,
            "each": blocks / tokens / max(1, model.num_blocks),
            "outer": outer,
        },
        source="autograd's saved tensors, operation by operation (planner/architectures/kept.py)",
    )


def _kept(job: Job, s: Strategy, parts: tuple[Part, ...]) -> Amount:
    """Bytes that all occurrences of the parts keep for one micro-batch."""
    length = job.recipe.sequence_length

    def per_sequence(numerics: Numerics) -> float:
        return sum(p.count * p.tokens(length) * _kept_per_token(job, p, numerics) for p in parts)

    return s.micro_batch_size * _by_numerics(job, s, per_sequence)


def _largest_block(job: Job, s: Strategy) -> Amount:
    """Bytes that the hungriest kind of block keeps, one occurrence of it."""
    single = (_kept(job, s, (replace(part, count=1),)) for part in job.model.blocks)
    return reduce(np.maximum, single, 0.0 * _tokens(job, s))


def recomputed_block(job: Job, s: Strategy) -> Term:
    """One block's activations, while backward has it recomputed.

        bytes = T * block, with recompute="full"

    Source: Chen et al., arXiv:1604.06174, section 4.
    """
    working = np.where(s.recompute == "full", _largest_block(job, s), 0.0)
    return Term(
        name="recomputed_block",
        amount=moments(like=working, last_block=working, first_block=working),
        formula="{tokens:,} tokens x {each:bytes}/token of one block",
        numbers={"tokens": _tokens(job, s), "each": working / _tokens(job, s)},
        source="Chen et al., arXiv:1604.06174, section 4",
    )


def autocast_weight_copies(job: Job, s: Strategy) -> Term:
    """The 16-bit copy of every weight matrix that autocast makes and backward needs.

        bytes = 2 * (weights of the blocks and the head)

    With recompute="full" the blocks' copies die with the autocast cache at the end of forward.
    Source: torch.autocast caches weight casts until its context ends; autograd keeps them.
    """
    is_autocast = _numerics(job, s) == Numerics.AUTOCAST
    weights = job.model.linear_weights
    outer_weights = sum(part.count * part.linear_weights for part in job.model.others)
    block_weights = max((part.linear_weights for part in job.model.blocks), default=0)
    everything = np.where(is_autocast, 2.0 * weights, 0.0)
    outer = np.where(is_autocast, 2.0 * outer_weights, 0.0)
    one_block = np.where(is_autocast, 2.0 * block_weights, 0.0)
    is_recomputed = s.recompute == "full"
    return Term(
        name="autocast_weight_copies",
        amount=moments(
            like=everything,
            forward=everything,
            loss=np.where(is_recomputed, outer, everything),
            last_block=np.where(is_recomputed, one_block, everything - outer),
            first_block=one_block,
        ),
        formula="2 B x {weights:,} matmul weights, while autocast or autograd holds them",
        numbers={"weights": weights},
        source="torch.autocast weight cache, PyTorch 2.13",
    )


def logits_and_loss(job: Job, s: Strategy) -> Term:
    """Logits, their fp32 copy, log-softmax and gradients around the cross-entropy.

        bytes = T * V * (4 + 6) at the end of forward (4 + 4 in fp32), T * V * (4 + 8) in its backward

    The 4 is the log-softmax that backward needs; forward also holds the logits in compute dtype
    and in fp32, backward the gradients into and out of the log-softmax.
    Source: transformers' ForCausalLMLoss over torch.nn.functional.cross_entropy.
    Leaves out: fused or chunked cross-entropy.
    """
    has_loss = 1.0 if job.model.has_token_loss else 0.0
    logits = _tokens(job, s) * job.model.vocab_size * has_loss
    forward = _by_numerics(job, s, lambda n: 8.0 if n == Numerics.FP32 else 10.0)
    return Term(
        name="logits_and_loss",
        amount=moments(like=logits, forward=forward * logits, loss=12.0 * logits),
        formula="{tokens:,} tokens x {vocabulary:,} words x {forward:.0f} B after forward,"
        " 12 B in the loss's backward",
        numbers={
            "tokens": _tokens(job, s),
            "vocabulary": job.model.vocab_size,
            "forward": forward,
        },
        source="transformers ForCausalLMLoss (fp32 upcast) over torch cross_entropy",
    )
