"""LoRA and QLoRA: which weights are trained, and what backward still needs beside frozen ones.

Notation: r rank of an adapter, A[r, in_features] and B[out_features, r] its matrices. What frozen
weights take is in `planner.parallel.frozen_weights`.
Source: Hu et al., LoRA, arXiv:2106.09685; Dettmers et al., QLoRA, arXiv:2305.14314; PEFT 0.21
tuners/lora/layer.py; bitsandbytes 0.49 autograd/_functions.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from planner.core.errors import InvalidInputError, UnsupportedError, did_you_mean
from planner.core.frozen import frozen
from planner.core.remembered import remembered
from planner.core.term import Amount, Truth
from planner.domain.job import HALF_BYTES, Job
from planner.domain.kept import Kept, Numerics
from planner.domain.model import Linear, Model, Part
from planner.domain.strategy import Strategy
from planner.parallel.frozen_weights import (
    frozen_bytes,
    frozen_part_bytes,
    is_single,
    narrow_linears,
)
from planner.parallel.partition import Stage, occurrences, stage_parameters

ALL_LINEAR = "all-linear"
"""PEFT's word for every linear of the blocks; routers and the head are left out."""

_INT8 = 8


@frozen
class Tensor:
    """Equal tensors that the optimizer steps."""

    rows: int
    columns: int
    """1 for a vector."""
    count: int = 1
    is_inner: bool = True
    """A matrix of a block; False for embeddings, heads and vectors."""
    is_routed: bool = False

    @property
    def elements(self) -> int:
        """Return the elements of one of them."""
        return self.rows * self.columns


def find_targets(
    model: Model,
    wanted: str | Sequence[str] | None,
    defaults: Sequence[str],
    modules: Mapping[str, Sequence[str]],
) -> tuple[str, ...]:
    """Return the names of the model's linears that get an adapter.

    Args:
        model: a decoder-only language model.
        wanted: module names as PEFT takes them, "all-linear", or None for the defaults.
        defaults: PEFT's own targets for the model type; every linear where it has none.
        modules: the modelling code's names of linears, where they differ from the planner's.

    Raises:
        UnsupportedError: the model is no decoder, or an expert was named.
        InvalidInputError: the model has no linear of a name.
    """
    if not model.has_trunk_of_decoder:
        raise UnsupportedError(
            f"adapters beside {model.name} ({model.model_type}) are not estimated yet",
            hint="decoder-only language models are, with the head that predicts tokens",
            field="recipe.method",
        )
    every = tuple(
        dict.fromkeys(
            layer.name for part in model.blocks for layer in part.linears if is_single(layer)
        )
    )
    if wanted == ALL_LINEAR or (wanted is None and not defaults):
        return every
    names = [wanted] if isinstance(wanted, str) else list(wanted or defaults)
    known = (*every, *(layer.name for part in model.others for layer in part.linears))
    found = (_linears_called(name, model, known, modules) for name in names)
    return tuple(dict.fromkeys(linear for linears in found for linear in linears))


def _linears_called(
    name: str, model: Model, known: Sequence[str], modules: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the linears that PEFT's module name stands for: its own, and shared experts' ones."""
    spellings = modules.get(name, [name])
    found = [k for k in known if any(k == one or k.endswith(f"_{one}") for one in spellings)]
    if found:
        return found
    routed = {x.name for part in model.blocks for x in part.linears if x.num_experts > 1}
    if any(linear == name or linear.endswith(f"_{name}") for linear in routed):
        raise UnsupportedError(
            f"the experts' {name[:60]} has no adapter of its own: PEFT trains linears alone",
            hint=f"name some of {', '.join(known)}",
            field="recipe.lora.targets",
        )
    hint = did_you_mean(name, [*known, *modules]) or f"known: {', '.join([*known, *modules])}"
    raise InvalidInputError(
        f"{model.name} has no linear {name[:60]!r}", hint=hint, field="recipe.lora.targets"
    )


def trained_tensors(job: Job, part: Part) -> tuple[Tensor, ...]:
    """Return the tensors of one occurrence of a part that the optimizer steps."""
    lora = job.recipe.lora
    if lora is not None:
        shapes = [
            shape
            for layer in part.linears
            if layer.name in lora.targets
            for shape in ((lora.rank, layer.in_features), (layer.out_features, lora.rank))
        ]
        return tuple(Tensor(rows=rows, columns=columns) for rows, columns in shapes)
    weights = (
        _of_linear(layer, layer.in_features, is_inner=part.is_block)
        for layer in part.linears
        if not layer.is_tied
    )
    biases = (_of_linear(layer, 1, is_inner=False) for layer in part.linears if layer.has_bias)
    width = job.model.hidden_size
    tables = (
        Tensor(rows=max(1, size // width), columns=min(size, width), is_inner=False)
        for size in part.tables.values()
    )
    vectors = (Tensor(rows=size, columns=1, is_inner=False) for size in part.vectors.values())
    return (*weights, *biases, *tables, *vectors)


def _of_linear(layer: Linear, columns: int, *, is_inner: bool) -> Tensor:
    """Return a linear's weights, or with one column its bias; of experts, one for each."""
    return Tensor(
        rows=layer.out_features,
        columns=columns,
        count=layer.num_experts,
        is_inner=is_inner,
        is_routed=layer.num_experts > 1,
    )


def trained_parameters(job: Job, s: Strategy, stage: Stage) -> tuple[Amount, Amount]:
    """Return the trained parameters of a stage on a rank, before ZeRO: dense ones, experts'.

        dense = sum(r * (in_features + out_features)) over the adapters, or all parameters

    divided by t, which cuts A by its inputs or by r, and B by its outputs; of a framework that keeps those
    whole, not the B of a matrix cut by its inputs.
    Notation: t tensor parallel size.
    Source: Megatron Bridge peft/utils.py ParallelLinearAdapter; the written script's own plan.
    """
    lora = job.recipe.lora
    if lora is None:
        return stage_parameters(job, s, stage)
    parts = occurrences(job.model, stage)
    adapters = sum(n * adapter_parameters(job, part) for part, n in parts)
    if not job.framework.capabilities.keeps_adapter_outputs_whole:
        return adapters / s.tensor_parallel_size, 0.0
    outputs = sum(
        n * layer.out_features
        for part, n in parts
        for layer in adapted_linears(job, part)
        if layer.cuts_inputs
    )
    whole = lora.rank * outputs
    return whole + (adapters - whole) / s.tensor_parallel_size, 0.0


@remembered(2)
def without_adapters(job: Job) -> Job:
    """Return the job as if all its weights were trained."""
    if job.recipe.lora is None:
        return job
    return replace(job, recipe=replace(job.recipe, lora=None))


def adapter_parameters(job: Job, part: Part) -> int:
    """Return the adapters' parameters of one occurrence of a part."""
    if job.recipe.lora is None:
        return 0
    return sum(tensor.elements for tensor in trained_tensors(job, part))


def trainable(job: Job) -> tuple[int, int]:
    """Return the parameters that are trained, and all of them with the adapters."""
    adapters = sum(part.count * adapter_parameters(job, part) for part in job.model.parts)
    if job.recipe.lora is None:
        return job.model.parameters, job.model.parameters
    return adapters, job.model.parameters + adapters


def kept_bytes(job: Job, s: Strategy, part: Part, kept: Kept, numerics: Numerics) -> Amount:
    """Return what backward needs of a tensor, per token.

    A frozen linear needs its input for nothing, unless its weights are int8. Adapters share the
    input where it is in their dtype, else each keeps its own cast of it (see `added_bytes`).
    """
    lora = job.recipe.lora
    if lora is None:
        return kept.compiled_bytes_in(numerics) if job.is_fused else kept.bytes_in(numerics)
    has_adapter = any(name in lora.targets for name in kept.operand_of)
    is_int8 = lora.base_bits == _INT8 and part.is_block
    if not kept.operand_of:
        return kept.frozen_bytes_in(numerics)
    if kept.name == "attention_output" and _keeps_output(job, part, numerics):
        return kept.bytes_in(numerics)
    shared = kept.bytes_in(Numerics.HALF if numerics == Numerics.AUTOCAST else numerics)
    if is_int8:
        return shared
    return np.where(_casts(job, s), 0.0, shared) if has_adapter else 0.0


def _keeps_output(job: Job, part: Part, numerics: Numerics) -> bool:
    attention = part.attention
    return attention is not None and not attention.materialises_scores(
        job.recipe.attention, numerics
    )


def added_bytes(job: Job, s: Strategy, part: Part) -> Amount:
    """Return what the adapters of a part add per token.

        bytes = sum(r * e + in_features * (e where the input is cast or dropped + 1 of the mask))
        where the output is dropped: sum(r * e + in_features * (e where the input is cast) + out_features)

    Notation: e bytes of what A multiplies: 2 under autocast, else the adapter's.
    Source: PEFT casts the input to the adapter's dtype, drops some of it, and multiplies by A and B.
    """
    lora = job.recipe.lora
    if lora is None:
        return 0.0
    layers = [layer for layer in part.linears if layer.name in lora.targets]
    inputs = sum(layer.in_features for layer in layers)
    element = np.where(computes_in_fp32(job, s), 4.0, 2.0)
    own = np.where(_casts(job, s), element * inputs, 0.0)
    outputs = sum(layer.out_features for layer in layers)
    mask = (outputs if lora.drops_output else inputs) if lora.dropout else 0
    return len(layers) * lora.rank * element + own + mask


def _casts(job: Job, s: Strategy) -> Truth:
    lora = job.recipe.lora
    if lora is None or (lora.dropout and not lora.drops_output):
        return True
    return _runs_autocast(job, s) | are_wider(job, s)


def are_wider(job: Job, s: Strategy) -> Truth:
    """Return whether adapters are held in fp32 beside hidden states in 16 bit.

    fully_shard casts what it gathers; a flat parameter of FSDP1 is an adapter's own, in its dtype.
    """
    is_wider = not _is_fp32(job) and job.precision.parameter_bytes > HALF_BYTES
    keeps_dtype = job.framework.sharding.flat_parameters
    return np.asarray(is_wider & (keeps_dtype | np.logical_not(_is_sharded(job, s))))


def computes_in_fp32(job: Job, s: Strategy) -> Truth:
    """Return whether the adapters' matmuls run in fp32: where they are held so, without autocast."""
    alone = are_wider(job, s) & np.logical_not(_runs_autocast(job, s))
    return np.asarray(_is_fp32(job) | alone)


def _is_fp32(job: Job) -> bool:
    return job.precision.matmul_dtype in {"fp32", "tf32"}


def launched(job: Job, part: Part) -> int:
    """Return the kernels that a part's adapters and quantised weights launch in forward.

    Four per adapter: A, B, the scale and the sum; two casts where it is in fp32, one of dropout; one
    for each weight that is dequantised.
    """
    lora = job.recipe.lora
    if lora is None:
        return 0
    casts = 2 if job.precision.parameter_bytes > HALF_BYTES else 0
    each = 4 + casts + (1 if lora.dropout else 0)
    narrow = narrow_linears(lora, part) if lora.is_quantised else ()
    dequantised = sum(layer.num_experts for layer in narrow)
    return each * len(adapted_linears(job, part)) + dequantised


def adapted_linears(job: Job, part: Part) -> tuple[Linear, ...]:
    """Return the linears of a part that have an adapter."""
    lora = job.recipe.lora
    return tuple(layer for layer in part.linears if lora is not None and layer.name in lora.targets)


def _runs_autocast(job: Job, s: Strategy) -> Truth:
    precision = job.framework.precisions[job.recipe.precision]
    return (precision.replicated_numerics == Numerics.AUTOCAST) & np.logical_not(
        _is_sharded(job, s)
    )


def _is_sharded(job: Job, s: Strategy) -> Truth:
    return np.asarray(s.zero_stage >= job.framework.sharding.parameters_sharded_from)


def gathered_stage_bytes(job: Job, s: Strategy, stage: Stage) -> Amount:
    """Return what gathering a stage's dense parameters takes: all of them, or the adapters after a step.

    Frozen weights travel as they are stored where ranks hold a share of them, and never elsewhere.
    """
    trained, _ = trained_parameters(job, s, stage)
    adapters = job.precision.gather_bytes * trained
    if job.recipe.lora is None:
        return adapters
    return adapters + np.where(_is_sharded(job, s), frozen_bytes(job, s, stage), 0.0)


def gathered_part_bytes(job: Job, s: Strategy, part: Part) -> Amount:
    """Return what a gathered occurrence of a part takes: frozen weights as stored, and adapters."""
    adapters = job.precision.gather_bytes * adapter_parameters(job, part)
    return frozen_part_bytes(job, s, part) + adapters


def largest_trained_tensor(job: Job) -> int:
    """Return the elements of the largest tensor that the optimizer steps."""
    sizes = (tensor.elements for part in job.model.parts for tensor in trained_tensors(job, part))
    return reduce(max, sizes, 0)
