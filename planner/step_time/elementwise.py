"""Seconds of what is bound by memory: norms, activations, dropouts, softmax, casts and sums, for one micro-batch.

Notation: T tokens of the micro-batch that a part sees on a rank; t tensor parallel size; all results in seconds, for a
number or a column of layouts.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner.core.remembered import remembered
from planner.core.term import Amount
from planner.domain.job import Job
from planner.domain.kept import Numerics, Share
from planner.domain.model import Attention, Part
from planner.domain.strategy import Recompute, Strategy
from planner.parallel.activations import (
    attention_bytes,
    kept_per_token,
    part_tokens,
    runs_in,
    sequence_split,
)
from planner.parallel.adapters import without_adapters
from planner.step_time.rates import counted_bandwidth, elementwise_bandwidth

_SCORE_FORWARD, _SCORE_BACKWARD = 1.8, 2.2
"""Passes over the 5 bytes that are kept per score. Softmax and dropout read and write 9 forward and
11 backward; Korthikanti et al., arXiv:2205.05198, table 4, measures them where they are recomputed."""
_UNFUSED_FORWARD, _UNFUSED_BACKWARD = 6.4, 6.8
"""More such passes where cast, scale, mask, softmax and cast back are kernels of their own: 32 and 34 bytes a score
(Megatron-LM's FusedScaleMaskSoftmax.forward_torch_softmax)."""
_EAGER_FORWARD, _EAGER_BACKWARD = 3.2, 2.8
"""More such passes of transformers' eager_attention_forward, counted: scale and mask 4 bytes a score each, the cast
after a softmax that writes fp32 8; their gradients 4 and 10."""
_REORDERED = 4
"""Tensors as wide as the queries that eager attention copies in the order of heads, or back: its batched matmuls' three
operands and its output."""


def elementwise(
    job: Job, s: Strategy, part: Part, numerics: Numerics, passes: tuple[Amount, Amount]
) -> Amount:
    """Seconds of norms, activations, dropouts, softmax and casts: bytes kept, times passes over them.

        seconds = T * (p * (kept - scores) + q * scores) / (hbm_fraction * hbm)

    Notation: p and q the passes; kept bytes per token that a rank keeps of the part, the outputs
    of those operations; scores those of them that attention materialises.
    Source: the framework record's memory_bound section.
    Leaves out: operations whose outputs are not kept. What runs beside frozen weights is what would be
    kept if they were trained; adapters' own are `planner.step_time.adapters`.
    """
    whole, job = without_recompute(s), without_adapters(job)
    kept = kept_per_token(job, whole, part, numerics)
    scores = score_bytes(job, whole, part, numerics)
    each, of_scores = passes
    moved = each * (kept - scores) + of_scores * scores
    return part_tokens(job, s, part) * moved / elementwise_bandwidth(job)


@remembered(2)
def without_recompute(s: Strategy) -> Strategy:
    """Return a layout as it is without recompute."""
    return replace(s, recompute=Recompute.NONE)


def forward(job: Job, s: Strategy, part: Part, numerics: Numerics) -> Amount:
    """Seconds of a part's elementwise work in forward."""
    if _is_counted(job):
        return _counted(job, s, part, numerics)[0]
    of_scores, _ = score_passes(job, s, part)
    return elementwise(
        job, s, part, numerics, (job.framework.memory_bound.forward_passes, of_scores)
    )


def backward(job: Job, s: Strategy, part: Part, numerics: Numerics) -> Amount:
    """Seconds of a part's elementwise work in backward, recompute left out."""
    if _is_counted(job):
        return _counted(job, s, part, numerics)[1]
    _, of_scores = score_passes(job, s, part)
    return elementwise(
        job, s, part, numerics, (job.framework.memory_bound.backward_passes, of_scores)
    )


def _is_counted(job: Job) -> bool:
    return job.framework.memory_bound.counted_fraction > 0


def _counted(job: Job, s: Strategy, part: Part, numerics: Numerics) -> tuple[Amount, Amount]:
    """Seconds of kernels that run one operation each, forward and backward: what each of them moves, counted.

        seconds = T * (split / t + between / q + scores / t) / (counted_fraction * hbm)

    Notation: as `kept_per_token` divides what is kept. Backward sums the gradient of every bias over the tokens.
    What nobody counted passes over what it keeps as often as the record says.
    Source: `planner.models.architectures.work`; the share of the bandwidth: the record's memory_bound section.
    """
    job = without_adapters(job)
    each = part_tokens(job, s, part) / counted_bandwidth(job)
    ahead, back = moved_per_token(job, s, part, numerics)
    return each * ahead, each * back


@remembered(8)
def moved_per_token(job: Job, s: Strategy, part: Part, numerics: Numerics) -> tuple[Amount, Amount]:
    """Return the bytes per token that kernels of one operation each move in forward and in backward."""
    bound = job.framework.memory_bound
    by_share = {share: np.zeros(2) for share in Share}
    for kept in part.kept:
        within = runs_in(job, part, kept, numerics)
        size = kept.bytes_in(within)
        passed = (bound.forward_passes * size, bound.backward_passes * size)
        by_share[kept.share] += kept.work.in_numerics(within) if kept.work else passed
    by_share[Share.SPLIT] += _of_scores(job, part, numerics)
    element = 4 if numerics == Numerics.FP32 else 2
    biased = element * sum(layer.out_features for layer in part.linears if layer.has_bias)
    between = by_share[Share.SEQUENCE] + by_share[Share.INPUT] + (0, biased)
    ahead, back = (
        split / s.tensor_parallel_size + other / sequence_split(s)
        for split, other in zip(by_share[Share.SPLIT], between, strict=True)
    )
    return ahead, back


def _of_scores(job: Job, part: Part, numerics: Numerics) -> tuple[float, float]:
    """Bytes per token that materialised scores of all heads move, and what is put in another order around them."""
    moved = np.zeros(2)
    for attention, num_keys in part.attentions(job.recipe.sequence_length):
        if materialises_scores(job, attention):
            moved += _of_one_attention(attention, num_keys, numerics)
    return moved[0], moved[1]


def _of_one_attention(
    attention: Attention, num_keys: int, numerics: Numerics
) -> NDArray[np.float64]:
    within = min(numerics, Numerics.HALF)
    keys = min(num_keys, attention.window or num_keys)
    passed = (_SCORE_FORWARD + _EAGER_FORWARD, _SCORE_BACKWARD + _EAGER_BACKWARD)
    size = attention.eager_bytes_per_score[within]
    work = attention.score_work
    each = work.in_numerics(within) if work else tuple(passes * size for passes in passed)
    reordered = 2 * _REORDERED * (4 if numerics == Numerics.FP32 else 2) * attention.query_size
    moved: NDArray[np.float64] = attention.num_heads * keys * np.array(each) + reordered
    return moved


def score_passes(job: Job, s: Strategy, part: Part) -> tuple[Amount, Amount]:
    """Return how often forward and backward pass over the kept bytes of materialised scores."""
    if job.recipe.compile and job.framework.compile.keeps_operands_alone:
        return _SCORE_FORWARD, _SCORE_BACKWARD
    if not job.framework.attention.softmax_multiple:
        return _SCORE_FORWARD + _EAGER_FORWARD, _SCORE_BACKWARD + _EAGER_BACKWARD
    unfused = unfuses_softmax(job, s, part)
    return (
        _SCORE_FORWARD + _UNFUSED_FORWARD * unfused,
        _SCORE_BACKWARD + _UNFUSED_BACKWARD * unfused,
    )


def unfuses_softmax(job: Job, s: Strategy, part: Part) -> Amount:
    """Return 1 where the framework's fused softmax of scores does not take the rank's heads, else 0.

        micro-batch * heads / t is no multiple of what the kernel asks for

    Source: Megatron-LM's FusedScaleMaskSoftmax.is_kernel_available: attn_batches % 4 == 0.
    """
    multiple = job.framework.attention.softmax_multiple
    if part.attention is None or not multiple:
        return 0.0
    batches = s.micro_batch_size * part.attention.num_heads // s.tensor_parallel_size
    return np.where(np.asarray(batches) % multiple == 0, 0.0, 1.0)


def score_bytes(job: Job, whole: Strategy, part: Part, numerics: Numerics) -> Amount:
    """Bytes per token of the materialised scores that a rank keeps where nothing is recomputed."""
    each = part.attentions(job.recipe.sequence_length)
    if not any(materialises_scores(job, attention) for attention, _ in each):
        return 0.0
    return attention_bytes(job, whole, part, numerics) / whole.tensor_parallel_size


def materialises_scores(job: Job, attention: Attention) -> bool:
    """Return whether the job's attention keeps its scores in memory."""
    return attention.materialises_scores(job.recipe.attention, job.precision.replicated_numerics)
