"""What forward leaves behind for backward: activations and weight copies. Bytes per rank.

Notation: T tokens of a micro-batch on a rank; F micro-batches in flight; V vocabulary; the rest as in
`planner.parallel.activations`.
"""

from dataclasses import replace

import numpy as np

from planner.core.term import (
    NOTHING,
    Amount,
    Expression,
    bytes_each,
    count,
    either,
    greatest,
    only_where,
    plain,
    size,
)
from planner.domain.job import Job
from planner.domain.kept import Numerics
from planner.domain.strategy import Recompute, Strategy
from planner.memory.block_gradients import around_last_matmul, repeats_blocks
from planner.memory.phases import BLOCKS, PASSES, PhasedTerm, always
from planner.parallel.activations import (
    block_retained_bytes,
    by_numerics,
    gathers_parameters,
    hidden_state_bytes,
    logits_tokens,
    mean_block_bytes,
    numerics_of,
    offloaded_blocks,
    part_kept_bytes,
    sequence_split,
    tokens,
)
from planner.parallel.adapters import trained_parameters
from planner.parallel.frozen_weights import largest_quantised_weights
from planner.parallel.partition import (
    Stage,
    occurrences,
    rank_weights,
    recomputed_share,
)


def activations(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """What autograd keeps from forward to backward, the logits left out.

        bytes = T * F * (blocks + outer)

    Notation: blocks, outer: kept bytes per token, over the stage's parts inside and outside the
    trunk; with recompute="full" a block keeps one hidden state, its input, and with "selective"
    what the framework saves of it, or only the first recompute_layers do; of those whose activations wait in
    host memory two are on their way. One micro-batch of the F is in backward; the others wait, and where weight
    gradients are put off it waits too.
    Source: operation counts in planner/models/architectures/kept.py; Chen et al., arXiv:1604.06174;
    division over tensor-parallel ranks: Korthikanti et al., arXiv:2205.05198, section 4.
    Leaves out: transient outputs that no operation keeps; alignment to 512 bytes.
    """
    seen = tokens(job, s)
    others = [(part, n) for part, n in occurrences(job.model, stage) if not part.is_block]
    kept_outside = sum((n * part_kept_bytes(job, s, part) for part, n in others), 0.0)
    retained = [block_retained_bytes(job, s, part) for part in job.model.blocks]
    of_largest = greatest(retained) / seen
    each = mean_block_bytes(job, s, stage) / seen
    away = offloaded_blocks(s, stage)
    on_gpu = stage.num_blocks - away + np.minimum(away, _IN_TRANSIT)
    blocks = count(on_gpu, "blocks") * size(each, "/token")
    outside = size(kept_outside / seen, "/token outside them")
    of_tokens, waiting = count(seen, "tokens"), plain(stage.in_flight - 1, "waiting")
    before, keeps_all = waiting * (blocks + outside), stage.waiting > 0
    everything = of_tokens * (blocks + outside) * plain(stage.in_flight, "in flight")
    of_last = of_tokens * (before + blocks)
    of_first = of_tokens * (before + size(of_largest, "/token of a block"))
    return PhasedTerm(
        name="activations",
        forward=everything,
        loss=everything,
        last_block=either(keeps_all, everything, of_last),
        first_block=either(keeps_all, everything, of_first),
        outer=of_tokens * before,
        source="autograd's saved tensors, operation by operation"
        " (planner/models/architectures/kept.py)",
    )


def recomputed_block(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """One block's activations, while backward has it recomputed.

        bytes = T * block with recompute="full", T * (block - saved) with "selective"

    Source: Chen et al., arXiv:1604.06174, section 4.
    """
    working: Amount = 0.0
    if np.any(s.recompute != Recompute.NONE):
        whole = replace(s, recompute=Recompute.NONE)
        for part in job.model.blocks:
            everything = part_kept_bytes(job, whole, part)
            saved = np.where(s.recompute == Recompute.FULL, 0.0, block_retained_bytes(job, s, part))
            working = np.maximum(working, everything - saved)
        working = np.where(stage.num_blocks > 0, working, 0.0)
    seen = tokens(job, s)
    again = count(seen, "tokens") * size(working / seen, "/token of one block")
    return PhasedTerm(
        name="recomputed_block",
        last_block=only_where(recomputed_share(job, s, stage.num_blocks) >= 1.0, again),
        first_block=again,
        source="Chen et al., arXiv:1604.06174, section 4",
    )


def recomputed_gradients(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """Gradients around a block's last matmul, while all of the block that was recomputed is there.

        bytes = T * (state + e * inputs / t), beside frozen weights T * (state + e * inputs * (2 + gated) / t)

    Notation: state the gradient of the block's output, a hidden state; inputs those of its last matmul, of all
    experts that a token meets; e bytes of an element. Frozen weights reduce no gradients afterwards, so a block's
    backward peaks at its activation, while the gradient of that is passed on, or to both factors (gated 1).
    Source: torch.utils.checkpoint repeats a block's forward whole before its backward begins, which starts
    with the last matmul; allocations of transformers 4.48 and 5.23 counted with PyTorch 2.13.
    Leaves out: recompute="selective" of attention alone, whose scores are not there yet; the same moment of
    trained weights, which is below the end of the block's backward.
    """
    begins = repeats_blocks(job, s) & (stage.num_blocks > 0)
    held = only_where(begins, around_last_matmul(job, s))
    return PhasedTerm(
        name="recomputed_gradients",
        last_block=only_where(recomputed_share(job, s, stage.num_blocks) >= 1.0, held),
        first_block=held,
        source="torch.utils.checkpoint, PyTorch 2.13",
    )


def autocast_weight_copies(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """The 16-bit copy of every weight matrix that autocast makes and backward needs.

        bytes = 2 * (weights of the blocks and the head)

    With recompute="full", and where "selective" saves outputs of matmuls, the blocks' copies die with the autocast
    cache at the end of forward. In a pipeline each micro-batch that waits for backward has those of its own forward; of
    several chunks the last, which has the head, goes back at once.
    Source: torch.autocast caches weight casts until its context ends; autograd keeps them.
    """
    modes = {job.precision.replicated_numerics, job.precision.sharded_numerics}
    parts = occurrences(job.model, stage) if Numerics.AUTOCAST in modes else []
    copied = [(part, n * rank_weights(part, s)) for part, n in parts]
    weights = sum((amount for _, amount in copied), 0.0)
    outside = sum((amount for part, amount in copied if not part.is_block), 0.0)
    of_block = greatest(rank_weights(part, s) for part in job.model.blocks)
    is_copied = numerics_of(job, s) == Numerics.AUTOCAST
    each = bytes_each(np.where(is_copied, job.precision.copy_bytes, 0.0))
    is_recomputed = repeats_blocks(job, s)
    share = recomputed_share(job, s, stage.num_blocks)
    others = (1.0 - share) * (weights - outside)
    everything = each * count(weights, "matmul weights, of which autocast keeps copies")
    one_block = each * count(of_block, "matmul weights of one block")
    of_head = np.where(np.asarray(s.virtual_pipeline_size) > 1, 0.0, outside)
    kept = of_head + np.where(is_recomputed, others, weights - outside)
    before = only_where(
        stage.in_flight > 1,
        plain(stage.in_flight - 1, "waiting") * each * count(kept, "matmul weights"),
    )
    return PhasedTerm(
        name="autocast_weight_copies",
        forward=before + everything,
        loss=before
        + either(
            is_recomputed,
            each * count(outside + others, "matmul weights outside recomputed blocks"),
            everything,
        ),
        last_block=before
        + either(
            is_recomputed,
            either(
                share >= 1.0,
                one_block,
                each * count(others, "matmul weights of blocks that do not recompute"),
            ),
            each * count(weights - outside, "matmul weights of the blocks"),
        ),
        first_block=before + either(stage.waiting > 0, everything, one_block),
        outer=before,
        source="torch.autocast weight cache, PyTorch 2.13",
    )


def tensor_parallel_buffers(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """The gathered input and the unreduced output around a region that is split by tensors.

        bytes = 2 * T * hidden state, under sequence parallelism
        of tensors that are made anew: T * h * (2 e + z n + (n + z e) / q) - T * state as a stage without loss
        ends its forward, z = 1 under sequence parallelism, else 0

    Notation: h hidden size; e, n bytes of an element of a matmul's and of a norm's output; q what divides the
    tokens between regions; state what the stage hands on, which is there only later.
    Source: Megatron-LM's GlobalMemoryBuffer for the all-gather, nanotron's MemoryBuffer; the
    reduce-scatter reads the whole output of the matmul before it. torch.distributed.tensor, PyTorch 2.13:
    the norm's output and it gathered live as long as the region, the matmul's output beside its copy in pieces.
    Leaves out: in backward, where the framework keeps gathered inputs, which are among the activations.
    """
    if job.framework.activations.keeps_gathered_inputs:
        return _tensors_between_ranks(job, s, stage)
    is_split = s.sequence_parallel & (s.tensor_parallel_size > 1)
    each = by_numerics(job, s, lambda n: 4.0 if n == Numerics.FP32 else 2.0)
    state = count(tokens(job, s), "tokens") * bytes_each(each) * _hidden_size(job)
    held = only_where(is_split & (stage.num_blocks > 0), _TWO * state)
    return PhasedTerm.during(
        PASSES,
        held,
        name="tensor_parallel_buffers",
        note="a gathered input, and an output before it is scattered",
        source=job.framework.activations.source,
    )


def _tensors_between_ranks(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """Return what `tensor_parallel_buffers` says of tensors that each exchange makes anew."""
    is_halved, between = np.asarray(s.sequence_parallel), sequence_split(s)
    of_matmul = by_numerics(job, s, lambda n: 4.0 if n == Numerics.FP32 else 2.0)
    of_norm = by_numerics(job, s, lambda n: 4.0 if n in {Numerics.FP32, Numerics.AUTOCAST} else 2.0)
    whole = 2.0 * of_matmul + is_halved * of_norm
    share = (of_norm + is_halved * of_matmul) / between
    each = job.model.hidden_size * (whole + share) - hidden_state_bytes(job, s) / tokens(job, s)
    has_blocks = (np.asarray(stage.num_blocks) > 0) & (np.asarray(stage.is_last) == 0)
    held = count(tokens(job, s), "tokens") * size(each, "/token around a block's last exchange")
    return PhasedTerm(
        name="tensor_parallel_buffers",
        forward=only_where(has_blocks & (np.asarray(s.tensor_parallel_size) > 1), held),
        note="input and output of a block's last exchange, while its activations are kept",
        source=job.framework.activations.source,
    )


def gathered_keys_values(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """Keys and values of a whole sequence around one block's attention, and their gradients.

        bytes = max(0, 2 a c T q / t - logits) in forward, 4 a c T q / t in backward

    Notation: a bytes per element; c context parallel size; q the width of all query heads, for which
    those of keys and values are repeated; logits those of the stage, which come when the last block's attention is done.
    Source: the framework record's context_parallel section; only what is gathered is of another size than
    the sequence's pieces.
    Leaves out: a kernel that reads grouped keys as they are.
    """
    is_gathered = (job.framework.context_parallel.exchange == "gather") & (
        s.context_parallel_size > 1
    )
    widths = [part.attention.query_size for part in job.model.blocks if part.attention]
    each = by_numerics(job, s, lambda n: 4.0 if n == Numerics.FP32 else 2.0)
    every_token = count(s.context_parallel_size * tokens(job, s), "tokens of all ranks")
    width = count(max(widths, default=0) / s.tensor_parallel_size, "wide")
    gathered = only_where(
        is_gathered & (stage.num_blocks > 0), _TWO * bytes_each(each) * every_token * width
    )
    split = s.tensor_parallel_size if job.framework.activations.splits_loss else 1
    logits = stage.is_last * each * logits_tokens(job, s) * job.model.vocab_size / split
    return PhasedTerm(
        name="gathered_keys_values",
        forward=either(
            logits > 0, size(np.maximum(0.0, gathered.value - logits), "beyond logits"), gathered
        ),
        last_block=_TWO * gathered,
        first_block=_TWO * gathered,
        note="keys and values, and in backward as much of their gradients",
        source=job.framework.context_parallel.source,
    )


def passing_gradients(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """Gradients in the compute dtype, on their way to an accumulator of their own.

        bytes = g * P when backward is through, and again for the whole step in DDP's buckets

    Notation: g passing_gradient_bytes, 0 where backward adds to the accumulator itself; P the
    stage's trained parameters on a rank.
    Source: nanotron's FP32GradientAccumulator, which adds them after backward; ZeRO-0 wraps the
    model in DistributedDataParallel without gradient_as_bucket_view.
    """
    each, source = job.precision.passing_gradient_bytes, job.framework.sharding.source
    if not each:
        return always("passing_gradients", NOTHING, source)
    passing: Expression = bytes_each(each) * count(
        sum(trained_parameters(job, s, stage)), "parameters"
    )
    buckets = only_where(s.zero_stage == 0, passing)
    return PhasedTerm(
        name="passing_gradients",
        forward=buckets,
        loss=buckets,
        last_block=buckets,
        first_block=buckets + passing,
        outer=buckets + passing,
        step=buckets,
        note="in DDP's buckets throughout, and once more as backward ends",
        source=source,
    )


def frozen_block_inputs(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """Inputs of blocks and their gradients, which FSDP1 holds until backward ends where blocks are frozen.

        bytes = 2 * T * state * (n - 1) around the first block's backward

    Notation: n blocks of the stage that recompute; state a hidden state. Of the n - 1 gradients one is that of the
    recomputed block's output; its output, which the checkpoint holds too, stands for it.
    Source: FullyShardedDataParallel reshards a frozen unit from a hook on the gradients of its inputs
    (_register_post_backward_reshard_only_hook), whose closure holds those inputs' autograd nodes, and they
    it; a reentrant checkpoint's inputs are leaves, with a gradient each. Live tensors counted with
    PyTorch 2.13 and PEFT 0.13.
    Leaves out: what Python's collector of cycles frees in between.
    """
    is_held = gathers_parameters(job, s) & (np.asarray(s.recompute) == Recompute.FULL)
    blocks = recomputed_share(job, s, stage.num_blocks) * stage.num_blocks
    others = count(np.maximum(blocks - 1.0, 0.0), "other blocks")
    state = size(hidden_state_bytes(job, s) / tokens(job, s), "/token")
    held = count(tokens(job, s), "tokens") * state * others
    return PhasedTerm(
        name="frozen_block_inputs",
        first_block=only_where(is_held, _TWO * held),
        note="inputs of frozen blocks, and their gradients",
        source="torch.distributed.fsdp FullyShardedDataParallel, PyTorch 2.4 to 2.13",
    )


def dequantised_weight(job: Job, stage: Stage) -> PhasedTerm:
    """The 16-bit copy of a quantised weight, while a matmul reads it.

        bytes = 2 * in_features * out_features of the largest quantised linear

    Source: bitsandbytes MatMul4Bit dequantises in forward, where the end
    holds none, and again in backward.
    Leaves out: int8 weights, which are multiplied as they are in forward; counted alike.
    """
    weights = count(largest_quantised_weights(job), "weights of the largest quantised matrix")
    held = only_where(stage.num_blocks > 0, bytes_each(2.0) * weights)
    source = "bitsandbytes 0.49 autograd/_functions.py MatMul4Bit"
    return PhasedTerm.during(BLOCKS, held, name="dequantised_weight", source=source)


_IN_TRANSIT = 2
"""Blocks whose activations are on the GPU while they are copied to or from the host: one in use, one on its way."""


def _hidden_size(job: Job) -> Expression:
    return count(job.model.hidden_size, "wide")


_TWO = plain(2.0)
