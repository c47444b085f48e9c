"""What frozen weights take of a rank: whole, in fp8, or quantised, and the constants beside those.

Notation: q bytes of a frozen weight of the blocks' linears, b of any other frozen parameter.
Source: Dettmers et al., QLoRA, arXiv:2305.14314; bitsandbytes 0.49 autograd/_functions.py.
"""

import numpy as np

from planner.core.term import Amount
from planner.domain.job import HALF_BITS, Job, Lora
from planner.domain.model import Linear, Part
from planner.domain.strategy import Strategy
from planner.parallel.partition import Stage, occurrences, rank_parameters

NF4_BLOCK, CONSTANTS_BLOCK = 64, 256
"""Weights that share a constant, and constants that share one of their own."""

_INT8 = 8


def frozen_weight_bytes(lora: Lora, in_features: int) -> float:
    """Return q.

        16 bit: 2;  int8: 1 + 4 / in_features;  NF4: 1/2 + 4/64
        NF4 with double quantisation: 1/2 + 1/64 + 4 / (64 * 256)

    Source: QLoRA, arXiv:2305.14314, section 3; LLM.int8 scales each row by an fp32 number.
    """
    if not lora.is_quantised:
        return lora.base_bits / 8
    if lora.base_bits == _INT8:
        return 1 + 4 / in_features
    return 1 / 2 + _constant_bytes(lora)


def frozen_part_bytes(job: Job, s: Strategy, part: Part) -> Amount:
    """Return the bytes of a part's frozen weights on a rank: q and b times their parameters.

    The constants of NF4 blocks are left to `constant_bytes`.
    Source: transformers replaces the linears of the blocks, and neither the head nor experts that
    are one tensor (the framework record's experts section); the framework record's precisions, for weights held in fp8.
    Leaves out: the fp32 that PEFT's prepare_model_for_kbit_training casts norms and embeddings to.
    """
    lora = job.recipe.lora
    if lora is None:
        return 0.0
    other = frozen_other_bytes(lora, job)
    saved = sum(
        (other - min(other, _narrow_bytes(job, lora, layer)))
        * (layer.weights / np.minimum(s.tensor_parallel_size, layer.most_splits))
        for layer in narrow_linears(lora, part)
    )
    return other * sum(rank_parameters(part, s)) - saved


def frozen_other_bytes(lora: Lora, job: Job) -> float:
    """Return b: 16 bit, or 32 where the whole job is in fp32."""
    return (
        4.0 if lora.base_bits > HALF_BITS or job.precision.matmul_dtype in {"fp32", "tf32"} else 2.0
    )


def frozen_bytes(job: Job, s: Strategy, stage: Stage) -> Amount:
    """Return the bytes of a stage's frozen weights on a rank, before ZeRO."""
    return sum(n * frozen_part_bytes(job, s, part) for part, n in occurrences(job.model, stage))


def constant_bytes(job: Job, s: Strategy, stage: Stage) -> Amount:
    """Return what the constants of a stage's NF4 blocks take of a rank.

        bytes = 4/64 * weights;  (1/64 + 4 / (64 * 256)) * weights with double quantisation

    Every rank keeps them whole, on the GPU: they are no parameters, so neither ZeRO nor FSDP divides them
    or moves them to host memory.
    Source: bitsandbytes 0.49 functional.py QuantState, an attribute of the weight; peak memory of IBM's
    fms-acceleration benchmarks, Mistral-7B QLoRA on two A100 under FSDP.
    """
    lora = job.recipe.lora
    if lora is None:
        return 0.0
    each = _constant_bytes(lora)
    weights = (
        (n, layer.weights / np.minimum(s.tensor_parallel_size, layer.most_splits))
        for part, n in occurrences(job.model, stage)
        for layer in narrow_linears(lora, part)
    )
    return sum((n * each * size for n, size in weights), 0.0)


def largest_quantised_weights(job: Job) -> int:
    """Return the weights of the largest linear that is quantised; 0 where none is."""
    lora = job.recipe.lora
    if lora is None or not lora.is_quantised:
        return 0
    layers = (layer for part in job.model.blocks for layer in narrow_linears(lora, part))
    return max((layer.in_features * layer.out_features for layer in layers), default=0)


def narrow_linears(lora: Lora, part: Part) -> tuple[Linear, ...]:
    """Return the linears of a part whose frozen weights may be held in less than 16 bit."""
    return tuple(
        layer
        for layer in part.linears
        if part.is_block
        and (is_single(layer) or (lora.quantises_experts and layer.num_experts > 1))
    )


def is_single(layer: Linear) -> bool:
    """Return whether a linear is a module of its own, and no router."""
    return layer.num_experts == 1 and layer.name != "router"


def _narrow_bytes(job: Job, lora: Lora, layer: Linear) -> float:
    if job.precision.frozen_bytes and not lora.is_quantised:
        return job.precision.frozen_bytes
    return frozen_weight_bytes(lora, layer.in_features) - _constant_bytes(lora)


def _constant_bytes(lora: Lora) -> float:
    if not lora.is_quantised or lora.base_bits == _INT8:
        return 0.0
    if lora.has_double_quantization:
        return 1 / NF4_BLOCK + 4 / (NF4_BLOCK * CONSTANTS_BLOCK)
    return 4 / NF4_BLOCK
