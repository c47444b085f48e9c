"""Seconds that adapters and quantised weights add to a micro-batch through one part.

Notation: T tokens of the micro-batch that a part sees on a rank; r rank of the adapters, A[r, in] and
B[out, r] their matrices; h bytes per element of the hidden states, w of an adapter's parameters, e of
what it computes in; q bytes of a frozen weight; t tensor parallel size.
"""

import numpy as np

from planner.core.term import Amount
from planner.domain.job import HALF_BYTES, Job
from planner.domain.model import Linear, Part
from planner.domain.strategy import Strategy
from planner.parallel.activations import part_tokens, sequence_split
from planner.parallel.adapters import (
    adapted_linears,
    are_wider,
    computes_in_fp32,
)
from planner.parallel.frozen_weights import frozen_weight_bytes, narrow_linears
from planner.step_time.compute import gemm
from planner.step_time.rates import elementwise_bandwidth

_FP32_BYTES = 4


def adapters(job: Job, s: Strategy, part: Part) -> Amount:
    """Seconds of a part's adapters in forward.

        seconds = sum(gemm(T, r, in) + gemm(T, out, r) + T * (in * i + out * o) / (hbm_fraction * hbm))
        i = h + w where w is not h, + w + e where e is not w, + 2 w + 1 of dropout
        o = 2 e of the scale, + h + 2 e of the sum, + e + h where that is cast back, + 2 e + 1 of dropout there

    Notation: in, out as a rank has them: t divides what it divides of the frozen weight, else r, and
    sequence parallelism the tokens of a sum.
    Source: PEFT 0.21 tuners/lora/layer.py Linear.forward, one kernel after another; Megatron Bridge
    peft/utils.py ParallelLinearAdapter, for t.
    Leaves out: the tiles of a kernel, which r does not fill; what tensor-parallel adapters exchange;
    that Megatron Bridge has one adapter for query, key and value.
    """
    return _matmuls(job, s, part) + _elementwise(job, s, part)


def adapters_backward(job: Job, s: Strategy, part: Part) -> Amount:
    """Seconds of a part's adapters in backward: two gradients of each matmul, and forward's passes.

    Elementwise, the gradient is scaled and cast, masked, and added to the input's.
    Source: as `adapters`.
    """
    return 2 * _matmuls(job, s, part) + _elementwise(job, s, part)


def dequantisation(job: Job, s: Strategy, part: Part) -> Amount:
    """Seconds to copy a part's quantised weights to 16 bit, which each pass does.

        seconds = sum((q + 2) * weights) / (hbm_fraction * hbm)

    Source: bitsandbytes 0.49 autograd/_functions.py MatMul4Bit: forward dequantises, and backward again.
    Leaves out: int8 weights, which are multiplied as they are in forward; counted alike.
    """
    lora = job.recipe.lora
    if lora is None or not lora.is_quantised:
        return 0.0
    moved = sum(
        (frozen_weight_bytes(lora, layer.in_features) + HALF_BYTES)
        * (layer.weights / _split(s, layer))
        for layer in narrow_linears(lora, part)
    )
    return moved / elementwise_bandwidth(job)


def _matmuls(job: Job, s: Strategy, part: Part) -> Amount:
    seen, dtype = part_tokens(job, s, part), job.precision.wide_matmul_dtype
    is_fp32 = computes_in_fp32(job, s)
    spent: Amount = 0.0
    for layer in adapted_linears(job, part):
        narrow = _pair(job, s, layer, seen, dtype)
        wide = _pair(job, s, layer, seen, "fp32") if dtype not in {"fp32", "tf32"} else narrow
        spent = spent + np.where(is_fp32, wide, narrow)
    return spent


def _pair(job: Job, s: Strategy, layer: Linear, seen: Amount, dtype: str) -> Amount:
    rank = job.recipe.lora.rank if job.recipe.lora else 0
    split = _split(s, layer)
    inputs, ranks = (
        (layer.in_features / split, rank)
        if layer.cuts_inputs
        else (layer.in_features, rank / split)
    )
    first = gemm(job, seen, ranks, inputs, dtype)
    return first + gemm(job, seen, layer.out_features / split, rank, dtype)


def _elementwise(job: Job, s: Strategy, part: Part) -> Amount:
    """Seconds of casts, dropout, scale and sum."""
    lora, layers = job.recipe.lora, adapted_linears(job, part)
    if lora is None or not layers:
        return 0.0
    hidden = _FP32_BYTES if job.precision.matmul_dtype in {"fp32", "tf32"} else HALF_BYTES
    held = np.where(are_wider(job, s), _FP32_BYTES, hidden)
    computed = np.where(computes_in_fp32(job, s), _FP32_BYTES, hidden)
    before, after = (
        lora.dropout and is_there for is_there in (not lora.drops_output, lora.drops_output)
    )
    of_input = _cast(hidden, held) + _cast(held, computed) + (2 * held + 1 if before else 0)
    of_output = 2 * computed + hidden + 2 * computed + _cast(computed, hidden)
    of_output = of_output + (2 * computed + 1 if after else 0)
    moved: Amount = 0.0
    for layer in layers:
        cut = _split(s, layer)
        inputs, outputs = (cut, sequence_split(s)) if layer.cuts_inputs else (1, cut)
        moved = (
            moved + of_input * layer.in_features / inputs + of_output * layer.out_features / outputs
        )
    return part_tokens(job, s, part) * moved / elementwise_bandwidth(job)


def _cast(before: Amount, after: Amount) -> Amount:
    return np.where(np.equal(before, after), 0, np.add(before, after))


def _split(s: Strategy, layer: Linear) -> Amount:
    return np.minimum(s.tensor_parallel_size, layer.most_splits)
