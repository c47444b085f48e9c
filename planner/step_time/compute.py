"""Seconds that one GPU computes for one micro-batch: matmuls, attention, memory-bound work, launches.

Notation: T tokens of the micro-batch that a part sees on a rank; t tensor and e expert parallel size; all results in
seconds, for a number or a column of layouts.
"""

import math

import numpy as np

from planner.catalog.attention import attention_curve
from planner.catalog.records import misaligned_slowdown
from planner.core.term import Amount
from planner.domain.job import Job
from planner.domain.kept import Numerics
from planner.domain.model import Attention, Linear, Part
from planner.domain.precision import MATMUL_BYTES
from planner.domain.strategy import Strategy
from planner.domain.timed import FLASH_BACKWARD, timed_share
from planner.parallel import compiled
from planner.parallel.activations import (
    by_numerics,
    part_tokens,
    sequence_split,
    tokens,
)
from planner.parallel.adapters import adapter_parameters
from planner.parallel.partition import rank_parameters
from planner.step_time import elementwise
from planner.step_time.fp8_casts import operand_casts
from planner.step_time.local_matmul import local_matmul
from planner.step_time.rates import (
    blend,
    elementwise_bandwidth,
    kernel_factor,
    power_share,
    ran_in,
    sustained_peak,
)

_ALIGNED_HEADS, _MISALIGNED = 8, 4.0
"""A batched 16-bit matmul whose heads are no multiple of 8 channels reads them unaligned, at a quarter of the rate
(NVIDIA, Matrix Multiplication Background, section 3; Megatron-DeepSpeed's 13,824 channels in 128 heads took 30 %
longer than in 96: bigscience tr11-176B-ml/chronicles-prequel.md)."""
_ALIGNED = 8
"""Channels of 16 bit whose rows begin where kernels load whole vectors."""


def gemm(  # noqa: PLR0913 - a matmul's five facts
    job: Job,
    rows: Amount,
    columns: Amount,
    depth: Amount,
    dtype: str | None = None,
    *,
    input_copies: float = 1.0,
) -> Amount:
    """Seconds of C[rows, columns] = A[rows, depth] B[depth, columns].

        seconds = c * (overhead + ((2mnk / (u * f * peak))^s + (bytes / (h * hbm))^s)^(1/s))

    Notation: c `kernel_factor`; f peak_fraction, h hbm_fraction, s sharpness of the GPU's curve; u the share of it
    that a training run sustains; bytes reads A and B and writes C once, in the matmul dtype (C of
    an fp8 matmul in 16 bit); of a convolution A once for all positions of its kernel.
    Source: `data/calibration/gemm.toml`, fitted on measured kernels of each GPU; the framework
    record's matmul section.
    Leaves out: tile and wave quantisation (the fit's median error is in the record).
    """
    dtype = dtype or job.precision.matmul_dtype
    size = MATMUL_BYTES.get(dtype, 2)
    flops = 2.0 * rows * columns * depth
    read = size * (1.0 * rows * depth / input_copies + 1.0 * depth * columns)
    moved = read + max(size, 2) * (1.0 * rows * columns)
    alone = blend(job, flops / sustained_peak(job, dtype), moved)
    return kernel_factor(job) * (job.cluster.gpu.gemm.overhead_seconds + alone)


def matmuls(job: Job, s: Strategy, part: Part) -> Amount:
    """Seconds of the part's weight matmuls in forward; fp8 is for the trunk's alone.

    Source: Transformer Engine's linears, which replace those of the layers.
    """
    dtype = job.precision.matmul_dtype if part.is_block else job.precision.wide_matmul_dtype
    seen = part_tokens(job, s, part)
    each = (
        linear(job, s, layer, seen, dtype) * _misaligned(job, s, part, layer, dtype)
        for layer in part.linears
    )
    return sum(each, 0.0)


def linear(job: Job, s: Strategy, layer: Linear, seen: Amount, dtype: str | None = None) -> Amount:
    """Seconds of one weight matmul in forward; one per expert of the rank, where there are several.

        seconds = times * gemm(rows, columns, depth) / f, as `local_matmul` has them

    Notation: f 1, or in fp8 the share of a matmul's rate with one scale per tensor that its recipe's kernels reach.
    Source: the framework record's fp8_recipes.
    Leaves out: uneven loads of the experts; grouped kernels that launch all experts at once.
    """
    local = local_matmul(s, layer, seen)
    one = gemm(job, local.rows, local.columns, local.depth, dtype, input_copies=layer.input_copies)
    if dtype == "fp8" and job.fp8_recipe is not None:
        one = one / job.fp8_recipe.matmul_fraction
    return local.times * one


def _misaligned(job: Job, s: Strategy, part: Part, layer: Linear, dtype: str) -> Amount:
    """Return how much longer a matmul takes for rows that are not aligned, as of GPT-2's 50,257 words.

        longer = max(1, slowdown / a)

    Notation: slowdown of rows of odd length; a channels that every row's start divides by, at most 8:
    loads of twice the width take half the time. What is compiled has its matrices padded
    (torch._inductor.config.shape_padding): the blocks, and the head where the framework compiles it as well.
    Source: `data/calibration/gemm.toml`; BERT's 30,522 words agree with a = 2.
    """
    aligned = math.gcd(layer.in_features, layer.out_features, _ALIGNED)
    is_compiled = job.recipe.compile if part.is_block else compiled.compiles_head(job, s)
    if aligned == _ALIGNED or job.framework.matmul.pads_vocabulary:
        return 1.0
    slowdown = misaligned_slowdown(job.cluster.gpu.compute_capability, dtype)
    return np.where(is_compiled, 1.0, max(1.0, slowdown / aligned))


def attention(job: Job, s: Strategy, part: Part) -> Amount:
    """Seconds of the scores, softmax and weighted sum in forward.

        flash, sdpa: T * flops_per_token / t / (fraction * peak)
        eager: all T * K scores of every head, written and read once by a batched matmul of depth
        head_dim; the passes of the softmax are `elementwise`

    Notation: K keys per query; fraction: of `data/calibration/attention.toml`.
    Leaves out: kernels whose grid does not fill the card.
    """
    return _attention(job, s, part, is_backward=False)


def attention_backward(job: Job, s: Strategy, part: Part) -> Amount:
    """Seconds of attention in backward: 5 matmuls of a fused kernel to forward's 2, 4 of an eager one.

    Source: FlashAttention-2, arXiv:2307.08691, section 3.1.2: the scores are computed again.
    """
    return _attention(job, s, part, is_backward=True)


def _attention(job: Job, s: Strategy, part: Part, *, is_backward: bool) -> Amount:
    scan = kernel_factor(job) * _scan(job, s, part, is_backward=is_backward)
    seen = part_tokens(job, s, part) / s.tensor_parallel_size
    each = (
        _one_attention(job, seen, layer, num_keys, is_backward=is_backward)
        for layer, num_keys in part.attentions(job.recipe.sequence_length)
    )
    return sum(each, scan)


def _one_attention(
    job: Job, queries: Amount, layer: Attention, num_keys: int, *, is_backward: bool
) -> Amount:
    if elementwise.materialises_scores(job, layer):
        times = kernel_factor(job) * (2 if is_backward else 1)
        return times * _eager_attention(job, queries, layer, num_keys)
    flops = queries * layer.flops_per_token(num_keys)
    gpu = job.cluster.gpu
    kernels = job.framework.attention
    name = kernels.flash_kernel if job.recipe.attention == "flash" else kernels.kernel
    curve = attention_curve(name, gpu.compute_capability)
    seen, dtype = min(num_keys, layer.window or num_keys), job.precision.wide_matmul_dtype
    share = timed_share(gpu.timed_attention, dtype, layer, seen, is_backward=is_backward)
    if not share:
        ramp = curve.ramp(layer.head_dim, seen, is_causal=layer.is_causal)
        share = ramp * (curve.backward if is_backward else curve.forward)
    times = kernel_factor(job) * (FLASH_BACKWARD if is_backward else 1.0)
    peak = power_share(job) * gpu.peak_flops[ran_in(job, dtype)]
    sustained = 1.0 if curve.is_alone else job.framework.matmul.sustained_fraction
    return times * flops / (sustained * share * peak)


def _scan(job: Job, s: Strategy, part: Part, *, is_backward: bool) -> Amount:
    """Seconds of a recurrence; what it keeps is `elementwise`.

        seconds = T * flops / sustained peak, of fp32 where the weights themselves are 16 bit
        fused: between those and T * moved / (hbm_fraction * hbm)

    Notation: flops and moved bytes as `planner.domain.model.Scan` has them.
    Source: transformers 5.23 casts what it scans to fp32, which autocast alone takes back; frameworks that fuse norms
    run the kernels of mamba-ssm, in 16 bit.
    Leaves out: that PyTorch's own matmuls are small and launched one chunk after the other; kernels of
    flash-linear-attention.
    """
    if not part.scan_flops_per_token:
        return 0.0
    dtype, scan = job.precision.wide_matmul_dtype, part.scan
    seen = part_tokens(job, s, part)
    flops = seen * part.scan_flops_per_token * (scan.backward if is_backward else 1)
    exact = "fp32" if dtype in {"bf16", "fp16"} else dtype
    is_fused = job.framework.activations.fuses_norms
    names = {Numerics.HALF: dtype if is_fused else exact}
    if scan.is_elementwise:
        return flops / sustained_peak(job, exact)
    moved = seen * scan.moved_bytes_per_token[is_backward] * is_fused
    return by_numerics(
        job, s, lambda n: blend(job, flops / sustained_peak(job, names.get(n, dtype)), moved)
    )


def _eager_attention(job: Job, queries: Amount, layer: Attention, num_keys: int) -> Amount:
    dtype = job.precision.wide_matmul_dtype
    size = MATMUL_BYTES.get(dtype, 2)
    flops = 4.0 * queries * num_keys * layer.query_size
    if size < MATMUL_BYTES["fp32"] and layer.query_size // layer.num_heads % _ALIGNED_HEADS:
        flops *= _MISALIGNED
    moved = 2.0 * size * queries * (layer.num_heads * num_keys + 2 * layer.query_size)
    return blend(job, flops / sustained_peak(job, dtype), moved)


def loss(job: Job, s: Strategy) -> Amount:
    """Seconds of the cross-entropy, forward and backward.

        seconds = l * M * V / (hbm_fraction * hbm)

    divided by t where the framework splits the loss by vocabulary.
    Notation: M tokens that the head sees; V vocabulary; l bytes per logit that cross HBM.
    Source: the framework record's memory_bound section, that of the recipe's loss, or, compiled, its compile section.
    """
    split = s.tensor_parallel_size if job.framework.activations.splits_loss else 1
    own = job.loss
    record = job.framework
    each: Amount = record.memory_bound.loss_bytes_per_logit
    if own is not None:
        each = own.moved_bytes_per_logit
    elif record.compile.moved_bytes_per_logit:
        fused = record.compile.moved_bytes_per_logit
        if job.model.vocab_size % _ALIGNED:
            fused += record.compile.padded_bytes_per_logit
        each = np.where(compiled.compiles_head(job, s), fused, each)
    moved = each * tokens(job, s) * job.model.share_with_logits * job.model.vocab_size / split
    has_loss = 1.0 if job.model.has_token_loss else 0.0
    return has_loss * moved / elementwise_bandwidth(job)


def routes_tokens(part: Part) -> bool:
    """Return whether the part deals its tokens to experts."""
    return any(layer.num_experts > 1 for layer in part.linears)


def routing(job: Job, s: Strategy, part: Part) -> Amount:
    """Seconds in which tokens are sorted by expert and back, forward; backward takes as long.

        seconds = 2 passes * a T k h / q / (hbm_fraction * hbm), k experts per token, read and written

    Source: the framework record's experts section.
    """
    if not routes_tokens(part):
        return 0.0
    chosen = max(layer.experts_per_token for layer in part.linears if layer.num_experts > 1)
    element = 4 if job.precision.matmul_dtype in {"fp32", "tf32"} else 2
    size = element * chosen * tokens(job, s) * job.model.hidden_size / sequence_split(s)
    return 2 * job.framework.experts.passes * size / elementwise_bandwidth(job)


def expert_biases(job: Job, s: Strategy, part: Part) -> tuple[Amount, Amount]:
    """Seconds of what biases of experts and clamped gates take by themselves, in forward and in backward.

        seconds = T k / q * (inner * gates' channels + output * outputs' channels) / (hbm_fraction * hbm)

    Notation: k experts per token, q as sequence parallelism divides; inner, output bytes per channel of a token at an expert.
    Source: the framework record's experts section.
    """
    biased = [layer for layer in part.linears if layer.num_experts > 1 and layer.has_bias]
    record = job.framework.experts
    rows = tokens(job, s) / sequence_split(s) / elementwise_bandwidth(job)
    channels = [
        sum(layer.experts_per_token * layer.out_features for layer in biased if is_output(layer))
        for is_output in (lambda layer: not layer.cuts_inputs, lambda layer: layer.cuts_inputs)
    ]
    moved = zip(record.biased_inner_bytes, record.biased_output_bytes, strict=True)
    forward, backward = (inner * channels[0] + output * channels[1] for inner, output in moved)
    return rows * forward, rows * backward


def training_flops_per_token(job: Job) -> float:
    """Return the FLOPs of forward and backward per token of the sequence, as far as they are computed.

        3 F;  beside frozen weights 2 F + A + 6 r;  F more where a reference runs too

    Notation: F forward's FLOPs, A those of attention's scores among them, which have no weights; r the
    adapters' parameters. Backward of a frozen matmul computes the inputs' gradients alone.
    Source: Kaplan et al., arXiv:2001.08361, section 2.1; Hu et al., LoRA, arXiv:2106.09685.
    Leaves out: recompute; that what lies before the first adapter has no backward.
    """
    length, model = job.recipe.sequence_length, job.model
    forward = model.flops_per_token(length)
    reference = forward if job.recipe.runs_reference else 0.0
    if job.recipe.lora is None:
        return 3 * forward + reference
    scores = sum(
        part.count * part.mixing_flops_per_token(length) * part.tokens(length)
        for part in model.parts
    )
    adapters = sum(part.count * adapter_parameters(job, part) for part in model.parts)
    return 2 * forward + scores / length + 6 * adapters + reference


def weight_gradients(job: Job, s: Strategy, part: Part, forward: Amount) -> Amount:
    """Seconds of the gradients of one occurrence of the part's weights in backward.

    As long as the matmuls of forward, and the passes that add them up in the gradients' own dtype.
    Frozen weights have none.
    Leaves out: the adapters' own, see `planner.step_time.adapters`.
    """
    if job.recipe.lora is not None:
        return 0.0
    accumulated = 2 * job.precision.gradient_bytes * sum(rank_parameters(part, s))
    return forward + accumulated / elementwise_bandwidth(job)


def selective_recompute(job: Job, s: Strategy, part: Part, numerics: Numerics) -> Amount:
    """Seconds of what recompute="selective" repeats of a part: see the framework's activations.

    "attention": the scores again;  "matmuls": half of the matmuls and all elementwise work
    """
    if job.framework.activations.selective_recompute == "attention":
        scores = elementwise.score_bytes(job, elementwise.without_recompute(s), part, numerics)
        seen = part_tokens(job, s, part)
        passes, _ = elementwise.score_passes(job, s, part)
        passed = passes * seen * scores / elementwise_bandwidth(job)
        return attention(job, s, part) + passed
    repeated = (matmuls(job, s, part) + operand_casts(job, s, part)) / 2
    return repeated + elementwise.forward(job, s, part, numerics)
