"""Logits and the gradients around their loss: bytes per rank.

Notation: T tokens of a micro-batch on a rank; V vocabulary; t tensor parallel size.
"""

import numpy as np

from planner.core.term import (
    NOTHING,
    Amount,
    Expression,
    bytes_each,
    count,
    either,
    only_where,
    plain,
    size,
)
from planner.domain.job import Job
from planner.domain.kept import Numerics
from planner.domain.strategy import Strategy
from planner.memory.phases import PhasedTerm, always
from planner.parallel import compiled
from planner.parallel.activations import by_numerics, hidden_state_bytes, logits_tokens, tokens
from planner.parallel.partition import Stage


def logits_and_loss(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """Logits, their fp32 copy, log-softmax and gradients around the cross-entropy.

        bytes = C * V * forward at the end of forward, C * V * backward in the loss's backward

    divided by t where the framework splits the loss by vocabulary. With torch, forward is 4 for
    the log-softmax that backward needs, 4 for the logits in fp32 and 2 in the compute dtype (none
    when that is fp32); backward adds the gradients into and out of the log-softmax. A loss that is
    split may be spelled out, and take more per logit; a pipeline keeps what its last stage returned, and the
    log-softmax of every micro-batch whose backward has not ended: of all with gpipe. Where the loss follows the
    model, not within it, forward ends with the logits in the compute dtype.
    Notation: C tokens whose logits exist at once: all T, or those of a chunk (`logits_tokens`).
    Source: the framework record's activations section, or that of the recipe's loss.
    """
    has_loss = stage.is_last * (1.0 if job.model.has_token_loss else 0.0)
    split = s.tensor_parallel_size if job.framework.activations.splits_loss else 1
    own = job.loss
    columns = (own.chunk_columns if own else 0) or job.model.vocab_size
    wide = min(columns, job.model.vocab_size)
    logits = count(has_loss * logits_tokens(job, s) * wide / split, "logits")
    forward, backward = _loss_bytes_per_logit(job, s)
    in_fp32 = 2 * forward if own and own.in_compute_dtype else forward - 2.0
    kept = by_numerics(job, s, lambda n: in_fp32 if n == Numerics.FP32 else forward)
    states: Expression = NOTHING
    if job.recipe.lora is not None and own is None:
        states = count(has_loss * tokens(job, s), "tokens") * size(
            hidden_state_bytes(job, s) / tokens(job, s), "/token into the head"
        )
    is_piped = job.framework.pipeline.keeps_buffers & (s.pipeline_parallel_size > 1)
    given = by_numerics(job, s, lambda n: 4.0 if n == Numerics.FP32 else 2.0)
    is_apart = job.framework.sharding.frees_outer_before_loss & s.divides_model
    returned = np.where(is_piped, given, 0.0)
    is_in_turn = (np.asarray(s.virtual_pipeline_size) == 1) & (stage.waiting == 0)
    others = np.where(is_piped & is_in_turn, stage.in_flight - 1, 0.0)
    each = logits * bytes_each(4.0 + returned)
    waiting = only_where(others > 0, each * plain(others, "waiting"))
    held = either(stage.waiting > 0, each, waiting)
    return PhasedTerm(
        name="logits_and_loss",
        forward=logits * bytes_each(np.where(is_apart, given, kept)) + states + waiting,
        loss=logits * bytes_each(backward + returned) + waiting,
        last_block=held,
        first_block=held,
        note="" if own is None else f"the {_loss_name(job)} loss never holds all of them",
        source=(own or job.framework.activations).source,
    )


def _loss_name(job: Job) -> str:
    return str(job.recipe.job) if job.recipe.compares_log_probabilities else job.recipe.loss


def _loss_bytes_per_logit(job: Job, s: Strategy) -> tuple[Amount, Amount]:
    whole: tuple[Amount, Amount] = (job.loss or job.framework.activations).loss_bytes_per_logit
    split = job.framework.activations.split_loss_bytes_per_logit
    if job.loss is not None:
        return whole
    if any(split):
        is_split = np.asarray(s.tensor_parallel_size) > 1
        whole = np.where(is_split, split[0], whole[0]), np.where(is_split, split[1], whole[1])
    fused = job.framework.compile.loss_bytes_per_logit
    if not any(fused):
        return whole
    is_fused = compiled.compiles_head(job, s)
    return np.where(is_fused, fused[0], whole[0]), np.where(is_fused, fused[1], whole[1])


def loss_gradients(job: Job, s: Strategy, stage: Stage) -> PhasedTerm:
    """Gradients that a loss in chunks gathers chunk by chunk: of the head, and of the hidden states.

        bytes = g * V * H in the loss's backward, g * (V + T) * H where it adds them up in fp32;
        g * (V + T) * H from forward on where that computes them

    V divided by t where the framework splits the loss by vocabulary, 0 beside frozen weights. Notation: g
    bytes of an element; H hidden size.
    Source: the framework record's section of the recipe's loss.
    Leaves out: a second buffer while gradients are cast or added to those of other micro-batches.
    """
    own = job.loss
    if own is None or not (own.keeps_gradients or own.repeats_head):
        return always("loss_gradients", NOTHING, job.framework.activations.source)
    split = s.tensor_parallel_size if job.framework.activations.splits_loss else 1
    in_16_bit = 4.0 if own.sums_in_fp32 else 2.0
    each = bytes_each(by_numerics(job, s, lambda n: 4.0 if n == Numerics.FP32 else in_16_bit))
    has_loss = stage.is_last * (1.0 if job.model.has_token_loss else 0.0)
    trained = 0.0 if job.recipe.lora else 1.0
    rows: Expression = count(trained * has_loss * job.model.vocab_size / split, "rows of the head")
    if own.keeps_gradients or own.sums_in_fp32:
        rows = rows + count(has_loss * tokens(job, s), "tokens")
    gathered = rows * count(job.model.hidden_size, "wide") * each
    return PhasedTerm(
        name="loss_gradients",
        forward=gathered if own.keeps_gradients else NOTHING,
        loss=gathered,
        source=own.source,
    )
