"""What forward leaves behind for backward: activations, weight copies, logits. Bytes per rank.

Notation: T = micro_batch_size * sequence_length / context_parallel_size tokens of a micro-batch on
a rank; t tensor parallel size; q = t under sequence parallelism, else 1; F micro-batches in flight;
V vocabulary.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import numpy as np

from planner.core.term import Amount, Term
from planner.domain.job import Job
from planner.domain.model import Numerics, Part, Share
from planner.domain.strategy import Strategy
from planner.parallel import adapters
from planner.parallel.partition import Stage, occurrences, rank_weights, stage_parameters
from planner.parallel.phases import moments


def tokens(job: Job, s: Strategy) -> Amount:
    """Return T, the tokens of a micro-batch that a rank sees."""
    return s.micro_batch_size * job.recipe.sequence_length / s.context_parallel_size


def sequence_split(s: Strategy) -> Amount:
    """Return q, over how many ranks what lies between the parallel regions is divided."""
    return np.where(s.sequence_parallel, s.tensor_parallel_size, 1)


def shards_parameters(job: Job, s: Strategy) -> Amount:
    """Return whether ranks hold a share of the parameters and gather the rest when needed."""
    return s.zero_stage >= job.framework.sharding.parameters_sharded_from


def _numerics(job: Job, s: Strategy) -> Amount:
    """Which numerics each layout computes in: fully_shard computes in the gathered dtype."""
    return np.where(
        shards_parameters(job, s),
        job.precision.sharded_numerics,
        job.precision.replicated_numerics,
    )


def _by_numerics(job: Job, s: Strategy, amount: Callable[[Numerics], Amount]) -> Amount:
    """Evaluate an amount for the numerics that each layout computes in."""
    replicated, sharded = job.precision.replicated_numerics, job.precision.sharded_numerics
    if replicated == sharded:
        return amount(replicated)
    return np.where(shards_parameters(job, s), amount(sharded), amount(replicated))


def kept_per_token(job: Job, s: Strategy, part: Part, numerics: Numerics) -> Amount:
    """Bytes per token that a rank keeps of a part.

        bytes = split / t + between / q + inputs / (1 if the framework keeps them gathered else q)

    Fused attention keeps a log-sum-exp per head; materialised scores keep themselves, and keys and
    values expanded to all heads.
    """
    is_fused = job.framework.activations.fuses_norms and numerics == Numerics.HALF
    of_norms = Numerics.FUSED if is_fused else numerics
    by_share = dict.fromkeys(Share, 0.0)
    for kept in part.kept:
        runs_in = of_norms if kept.name in part.vectors else numerics
        if kept.name in job.framework.activations.spelled_out:
            runs_in = min(numerics, Numerics.HALF)
        size = adapters.kept_bytes(job, s, part, kept, runs_in)
        by_share[kept.share] += size * (job.precision.operand_fraction if kept.operand_of else 1)
    by_share[Share.INPUT] += adapters.added_bytes(job, s, part)
    split = by_share[Share.SPLIT] + attention_bytes(job, s, part, numerics)
    between = by_share[Share.SEQUENCE] / sequence_split(s)
    gathered = 1 if job.framework.activations.keeps_gathered_inputs else sequence_split(s)
    return split / s.tensor_parallel_size + between + by_share[Share.INPUT] / gathered


def attention_bytes(job: Job, s: Strategy, part: Part, numerics: Numerics) -> Amount:
    """Bytes per token that attention itself keeps over all heads."""
    attention = part.attention
    if attention is None:
        return 0.0
    element_bytes = 4 if numerics == Numerics.FP32 else 2
    expanded = 2 * (attention.query_size - attention.key_value_size)
    if not attention.materialises_scores(job.recipe.attention, numerics):
        mask = attention.mask_size(job.recipe.attention, part.tokens(job.recipe.sequence_length))
        is_repeated = job.framework.activations.repeats_key_values or (
            mask > 0 and attention.num_key_value_heads > 1
        )
        size = attention.retained_size + (expanded if is_repeated else 0) + mask
        return 4 * attention.num_heads + element_bytes * size
    per_score = attention.eager_bytes_per_score
    scores = attention.num_heads * part.tokens(job.recipe.sequence_length)
    kept: Amount = per_score[min(numerics, len(per_score) - 1)] * scores
    if job.framework.activations.selective_recompute == "attention":
        kept = np.where(s.recompute == "selective", 0.0, kept)
    return kept + element_bytes * expanded


def _kept(job: Job, s: Strategy, part: Part) -> Amount:
    """Bytes that one occurrence of a part keeps for one micro-batch."""
    seen = tokens(job, s) * part.tokens(job.recipe.sequence_length) / job.recipe.sequence_length
    return seen * _by_numerics(job, s, lambda n: kept_per_token(job, s, part, n))


def _retained(job: Job, s: Strategy, part: Part) -> Amount:
    """Bytes that one occurrence of a block keeps for one micro-batch, given what is recomputed."""
    kept = _kept(job, s, part)
    if job.framework.activations.selective_recompute == "matmuls" and np.any(
        s.recompute == "selective"
    ):
        saved = np.minimum(kept, _checkpoint(job, s) + _matmul_outputs(job, s, part))
        kept = np.where(s.recompute == "selective", saved, kept)
    return np.where(s.recompute == "full", _checkpoint(job, s), kept)


def _checkpoint(job: Job, s: Strategy) -> Amount:
    """Bytes of one hidden state, which is all that recompute="full" keeps of a block."""
    is_half = job.precision.copy_bytes == 0
    each = job.model.hidden_size * _by_numerics(
        job, s, lambda n: 2 if n in {Numerics.HALF, Numerics.FUSED} or is_half else 4
    )
    return tokens(job, s) * each / sequence_split(s)


def _matmul_outputs(job: Job, s: Strategy, part: Part) -> Amount:
    """Bytes that selective recompute by operation saves of a block beside its input.

        bytes = T * (every second matmul's output + attention's output and log-sum-exp
                     + the reduce-scattered outputs of matmuls split by their inputs)

    Matmuls are counted in the order they run, the first one saved; all that lies between them is
    run again in backward. What follows a matmul split by its inputs is whole on every rank until
    it is reduced.
    Source: torchtitan distributed/activation_checkpoint.py, policy of the "op" option.
    Leaves out: the grouped matmuls of routed experts, which are not on its list.
    """
    split = s.tensor_parallel_size
    attention = part.attention
    layers = [layer for layer in part.linears if layer.num_experts == 1]
    elements: Amount = sum(
        layer.out_features / (1 if layer.cuts_inputs else np.minimum(split, layer.most_splits))
        for layer in layers[::2]
    )
    reduced = sum(layer.out_features for layer in layers if layer.cuts_inputs)
    elements = elements + np.where(s.sequence_parallel & (split > 1), reduced / split, 0.0)
    log_sum_exp = 0.0
    if attention is not None and job.recipe.attention != "eager":
        elements = elements + attention.query_size / split
        log_sum_exp = 4 * attention.num_heads / split
    size = _by_numerics(job, s, lambda n: 4 if n == Numerics.FP32 else 2)
    return tokens(job, s) * (size * elements + log_sum_exp)


def activations(job: Job, s: Strategy, at: Stage) -> Term:
    """What autograd keeps from forward to backward, the logits left out.

        bytes = F * (blocks + outer)

    Notation: blocks, outer: tokens times kept bytes per token, over the stage's parts inside and
    outside the trunk; with recompute="full" a block keeps one hidden state, its input, and with
    "selective" what the framework saves of it.
    Source: operation counts in planner/models/architectures/kept.py; Chen et al., arXiv:1604.06174;
    division over tensor-parallel ranks: Korthikanti et al., arXiv:2205.05198, section 4.
    Leaves out: transient outputs that no operation keeps; alignment to 512 bytes.
    """
    none = 0.0 * tokens(job, s)
    others = [(part, n) for part, n in occurrences(job.model, at) if not part.is_block]
    outer = sum((n * _kept(job, s, part) for part, n in others), start=none)
    retained = [_retained(job, s, part) for part in job.model.blocks]
    blocks = sum((n * one for one, n in zip(retained, at.blocks, strict=True)), start=none)
    first = reduce(np.maximum, retained, none)
    waiting = (at.in_flight - 1) * (blocks + outer)
    return Term(
        name="activations",
        amount=moments(
            like=blocks,
            forward=waiting + blocks + outer,
            loss=waiting + blocks + outer,
            last_block=waiting + blocks,
            first_block=waiting + first,
            outer=waiting,
        ),
        formula="{tokens:,.0f} tokens x ({count:g} blocks x {each:bytes}/token + {outer:bytes}/token"
        " outside them) x {flying:g} in flight",
        numbers={
            "tokens": tokens(job, s),
            "count": at.num_blocks,
            "each": blocks / tokens(job, s) / np.maximum(1, at.num_blocks),
            "outer": outer / tokens(job, s),
            "flying": at.in_flight,
        },
        source="autograd's saved tensors, operation by operation (planner/models/architectures/kept.py)",
    )


def recomputed_block(job: Job, s: Strategy, at: Stage) -> Term:
    """One block's activations, while backward has it recomputed.

        bytes = T * block with recompute="full", T * (block - saved) with "selective"

    Source: Chen et al., arXiv:1604.06174, section 4.
    """
    none, whole = 0.0 * tokens(job, s), replace(s, recompute="none")
    working = none
    if np.any(s.recompute != "none"):
        for part in job.model.blocks:
            everything = _kept(job, whole, part)
            saved = np.where(s.recompute == "full", 0.0, _retained(job, s, part))
            working = np.maximum(working, everything - saved)
        working = np.where(at.num_blocks > 0, working, 0.0)
    return Term(
        name="recomputed_block",
        amount=moments(like=working, last_block=working, first_block=working),
        formula="{tokens:,.0f} tokens x {each:bytes}/token of one block",
        numbers={"tokens": tokens(job, s), "each": working / tokens(job, s)},
        source="Chen et al., arXiv:1604.06174, section 4",
    )


def autocast_weight_copies(job: Job, s: Strategy, at: Stage) -> Term:
    """The 16-bit copy of every weight matrix that autocast makes and backward needs.

        bytes = 2 * (weights of the blocks and the head)

    With recompute="full" the blocks' copies die with the autocast cache at the end of forward.
    Source: torch.autocast caches weight casts until its context ends; autograd keeps them.
    """
    size = np.where(_numerics(job, s) == Numerics.AUTOCAST, job.precision.copy_bytes, 0.0)
    modes = {job.precision.replicated_numerics, job.precision.sharded_numerics}
    parts = occurrences(job.model, at) if Numerics.AUTOCAST in modes else []
    held = [(part, count * rank_weights(part, s)) for part, count in parts]
    weights = sum(amount for _, amount in held)
    outer_weights = sum(amount for part, amount in held if not part.is_block)
    block_weights = reduce(np.maximum, (rank_weights(p, s) for p in job.model.blocks), 0.0)
    everything, outer, one_block = size * weights, size * outer_weights, size * block_weights
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
        formula="{size:g} B x {weights:,.0f} matmul weights, while autocast or autograd holds them",
        numbers={"size": size, "weights": weights},
        source="torch.autocast weight cache, PyTorch 2.13",
    )


def logits_and_loss(job: Job, s: Strategy, at: Stage) -> Term:
    """Logits, their fp32 copy, log-softmax and gradients around the cross-entropy.

        bytes = T * V * forward at the end of forward, T * V * backward in the loss's backward

    divided by t where the framework splits the loss by vocabulary. With torch, forward is 4 for
    the log-softmax that backward needs, 4 for the logits in fp32 and 2 in the compute dtype (none
    when that is fp32); backward adds the gradients into and out of the log-softmax.
    Source: the framework record's activations section.
    Leaves out: chunked cross-entropy.
    """
    has_loss = at.is_last * (1.0 if job.model.has_token_loss else 0.0)
    split = s.tensor_parallel_size if job.framework.activations.splits_loss else 1
    logits = has_loss * tokens(job, s) * job.model.vocab_size / split
    forward, backward = job.framework.activations.loss_bytes_per_logit
    forward = _by_numerics(job, s, lambda n: forward - (2.0 if n == Numerics.FP32 else 0.0))
    return Term(
        name="logits_and_loss",
        amount=moments(like=logits, forward=forward * logits, loss=backward * logits),
        formula="{logits:,.0f} logits x {forward:g} B after forward,"
        " {backward:g} B in the loss's backward",
        numbers={"logits": logits, "forward": forward, "backward": backward},
        source=job.framework.activations.source,
    )


def tensor_parallel_buffers(job: Job, s: Strategy, at: Stage) -> Term:
    """The gathered input and the unreduced output around a region that is split by tensors.

        bytes = 2 * T * hidden state, under sequence parallelism

    Source: Megatron-LM's GlobalMemoryBuffer for the all-gather, nanotron's MemoryBuffer; the
    reduce-scatter reads the whole output of the matmul before it.
    Leaves out: where the framework keeps gathered inputs, they are among the activations.
    """
    has_buffers = not job.framework.activations.keeps_gathered_inputs
    is_split = has_buffers & s.sequence_parallel & (s.tensor_parallel_size > 1)
    each = _by_numerics(job, s, lambda n: 4 if n == Numerics.FP32 else 2)
    whole = tokens(job, s) * each * job.model.hidden_size
    size = np.where(is_split & (at.num_blocks > 0), 2.0 * whole, 0.0)
    return Term(
        name="tensor_parallel_buffers",
        amount=moments(like=size, forward=size, loss=size, last_block=size, first_block=size),
        formula="{size:bytes}: a gathered input and an unreduced output of {tokens:,.0f} tokens"
        " where they are divided in between",
        numbers={"size": size, "tokens": tokens(job, s)},
        source=job.framework.activations.source,
    )


def gathered_keys_values(job: Job, s: Strategy, at: Stage) -> Term:
    """Keys and values of a whole sequence around one block's attention, and their gradients.

        bytes = 2 a c T q / t in forward, twice that in backward

    Notation: a bytes per element; c context parallel size; q the width of all query heads, for which
    those of keys and values are repeated.
    Source: the framework record's context_parallel section; only what is gathered is of another size than
    the sequence's pieces.
    Leaves out: a kernel that reads grouped keys as they are.
    """
    is_gathered = (job.framework.context_parallel.exchange == "gather") & (
        s.context_parallel_size > 1
    )
    sizes = [part.attention.query_size for part in job.model.blocks if part.attention]
    each = _by_numerics(job, s, lambda n: 4 if n == Numerics.FP32 else 2)
    whole = 2 * each * s.context_parallel_size * tokens(job, s) / s.tensor_parallel_size
    size = np.where(is_gathered & (at.num_blocks > 0), max(sizes, default=0) * whole, 0.0)
    return Term(
        name="gathered_keys_values",
        amount=moments(like=size, forward=size, last_block=2 * size, first_block=2 * size),
        formula="{size:bytes} for the {tokens:,.0f} tokens of all ranks, and as much of gradients",
        numbers={"size": size, "tokens": s.context_parallel_size * tokens(job, s)},
        source=job.framework.context_parallel.source,
    )


def passing_gradients(job: Job, s: Strategy, at: Stage) -> Term:
    """Gradients in the compute dtype, on their way to an accumulator of their own.

        bytes = g * P when backward is through, and again for the whole step in DDP's buckets

    Notation: g passing_gradient_bytes, 0 where backward adds to the accumulator itself; P the
    stage's parameters on a rank.
    Source: nanotron's FP32GradientAccumulator, which adds them after backward; ZeRO-0 wraps the
    model in DistributedDataParallel without gradient_as_bucket_view.
    """
    each = job.precision.passing_gradient_bytes
    parameters = sum(stage_parameters(job, s, at)) if each else 0.0 * at.num_blocks
    size = each * parameters
    buckets = np.where(s.zero_stage == 0, size, 0.0)
    return Term(
        name="passing_gradients",
        amount=moments(
            like=size,
            forward=buckets,
            loss=buckets,
            last_block=buckets,
            first_block=buckets + size,
            outer=buckets + size,
            step=buckets,
        ),
        formula="{each:g} B x {parameters:,.0f} parameters as backward ends,"
        " and {buckets:bytes} in DDP's buckets",
        numbers={
            "each": each,
            "parameters": parameters,
            "buckets": buckets,
        },
        source=job.framework.sharding.source,
    )
