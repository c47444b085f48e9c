"""Seconds that one GPU computes for one micro-batch: matmuls, attention, memory-bound work, launches.

Notation: T tokens of the micro-batch (a number or a column); all results in seconds.
"""

import numpy as np

from planner.job import Job
from planner.model import Attention, Linear, Numerics, Part
from planner.term import Amount

_BACKWARD_GEMMS = 2
"""Per forward matmul: one for the gradient of its input, one for that of its weight."""
_FLASH_BACKWARD = 2.5
"""Flash attention's backward recomputes the scores: 5 matmuls against forward's 2."""


def gemm(job: Job, rows: Amount, columns: int, depth: int) -> Amount:
    """Seconds of C[rows, columns] = A[rows, depth] B[depth, columns].

        seconds = overhead + ((2mnk / (u * f * peak))^s + (bytes / (h * hbm))^s)^(1/s)

    Notation: f peak_fraction, h hbm_fraction, s sharpness of the GPU's curve; u the share of it
    that a training run sustains; bytes reads A and B and writes C once, in the matmul dtype.
    Source: `data/calibration/gemm.toml`, fitted on measured kernels of each GPU; the framework
    record's sustained section.
    Leaves out: tile and wave quantisation (the fit's median error is in the record).
    """
    gpu = job.cluster.gpu
    curve = gpu.gemm
    element_bytes = 4 if job.precision.matmul_dtype in {"fp32", "tf32"} else 2
    flops = 2.0 * rows * columns * depth
    moved = element_bytes * (1.0 * rows * depth + 1.0 * depth * columns + 1.0 * rows * columns)
    arithmetic = flops / _sustained_peak(job)
    memory = moved / (curve.hbm_fraction * gpu.hbm_bytes_per_second)
    s = curve.sharpness
    return curve.overhead_seconds + (arithmetic**s + memory**s) ** (1 / s)


def matmuls(job: Job, part: Part, tokens: Amount) -> Amount:
    """Seconds of the part's weight matmuls in forward."""
    return sum((linear(job, layer, tokens) for layer in part.linears), 0.0 * tokens)


def linear(job: Job, layer: Linear, tokens: Amount) -> Amount:
    """Seconds of one weight matmul in forward; one per expert, where there are several.

        seconds = E * gemm(T * k / E, out_features, in_features)

    Notation: E num_experts; k experts_per_token.
    Leaves out: uneven loads of the experts; grouped kernels that launch all experts at once.
    """
    rows = tokens * layer.experts_per_token / layer.num_experts
    return layer.num_experts * gemm(job, rows, layer.out_features, layer.in_features)


def attention(job: Job, part: Part, tokens: Amount) -> Amount:
    """Seconds of the scores, softmax and weighted sum in forward.

        flash, sdpa: T * flops_per_token / (flash_fraction * gemm peak)
        eager: twice that where causal (nothing is skipped) at the GEMM peak, plus 4 passes over
        the scores

    Source: FlashAttention-2, arXiv:2307.08691, section 4.1, for the share of the peak.
    Leaves out: short sequences, where the kernel does not fill the card.
    """
    if part.attention is None:
        return 0.0 * tokens
    sequence_length = part.tokens(job.recipe.sequence_length)
    flops = tokens * part.attention.flops_per_token(sequence_length)
    peak = _sustained_peak(job)
    if not _materialises_scores(job, part.attention):
        return flops / (job.framework.flash_fraction * peak)
    scores_bytes = 4.0 * tokens * part.attention.num_heads * sequence_length
    skipped = 2 if part.attention.is_causal else 1
    return flops * skipped / peak + 4 * scores_bytes / _elementwise_bandwidth(job)


def elementwise(job: Job, part: Part, tokens: Amount, numerics: Numerics, passes: float) -> Amount:
    """Seconds of norms, activations, dropouts and casts: bytes kept, times passes over them.

        seconds = passes * T * kept / (hbm_fraction * hbm)

    Notation: kept bytes per token of the part, which are the outputs of those operations.
    Source: the framework record's memory_bound section.
    Leaves out: operations whose outputs are not kept.
    """
    kept = part.kept_bytes_per_token(numerics)
    return passes * tokens * kept / _elementwise_bandwidth(job)


def loss(job: Job, tokens: Amount) -> Amount:
    """Seconds of the cross-entropy, forward and backward.

        seconds = 34 * T * V / (hbm_fraction * hbm)

    Notation: V vocabulary; the logits cross HBM about 34 bytes per element: cast (2 + 4),
    log-softmax (4 + 4), its gradient (4 + 4 + 4) and the cast back (4 + 2), and the head's reads.
    Leaves out: fused cross-entropy.
    """
    moved = 34.0 * tokens * job.model.vocab_size
    return moved / _elementwise_bandwidth(job) if job.model.has_token_loss else 0.0 * tokens


def launches(job: Job, part: Part) -> float:
    """Seconds the host needs to launch the part's operations, forward and backward together.

    Operations are three per matmul and two per kept tensor; the sum over a micro-batch is a floor
    under its time, which small micro-batches meet.
    """
    operations = 3 * len(part.linears) + 2 * len(part.kept)
    return operations * job.framework.host_seconds_per_operation


def optimizer_step(job: Job, parameters: Amount) -> Amount:
    """Seconds of the optimizer's passes over the parameters that a rank steps.

        seconds = passes * parameter_bytes * parameters / (hbm_fraction * hbm)

    Source: the framework record's optimizer section.
    Leaves out: gradient clipping's norm (one more pass over the gradients).
    """
    moved = job.optimizer.passes * job.precision.parameter_bytes * parameters
    return moved / _elementwise_bandwidth(job)


def forward(job: Job, part: Part, tokens: Amount, numerics: Numerics) -> Amount:
    """Seconds of one occurrence of the part in forward."""
    return (
        matmuls(job, part, tokens)
        + attention(job, part, tokens)
        + elementwise(job, part, tokens, numerics, job.framework.forward_passes)
    )


def backward(job: Job, part: Part, tokens: Amount, numerics: Numerics) -> Amount:
    """Seconds of one occurrence of the part in backward, recompute left out."""
    is_eager = part.attention is not None and _materialises_scores(job, part.attention)
    attention_factor = _BACKWARD_GEMMS if is_eager else _FLASH_BACKWARD
    return (
        _BACKWARD_GEMMS * matmuls(job, part, tokens)
        + attention_factor * attention(job, part, tokens)
        + elementwise(job, part, tokens, numerics, job.framework.backward_passes)
    )


def at_least(host_seconds: float, gpu_seconds: Amount) -> Amount:
    """Return the GPU's time, or the host's where launching takes longer."""
    return np.maximum(gpu_seconds, host_seconds)


def _materialises_scores(job: Job, attention: Attention) -> bool:
    return attention.materialises_scores(job.recipe.attention, job.precision.replicated_numerics)


def _sustained_peak(job: Job) -> float:
    """Return the FLOPs per second that large matmuls keep up through a training run."""
    fraction = job.cluster.gpu.gemm.peak_fraction * job.framework.sustained_fraction
    return fraction * job.peak_flops_per_second


def _elementwise_bandwidth(job: Job) -> float:
    return job.cluster.gpu.hbm_bytes_per_second * job.framework.elementwise_hbm_fraction
