"""What torchtitan's own Llama 3 cannot run."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from planner.catalog import records
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import ZERO_1, Offload, Strategy
from planner.parallel.partition import layers_per_stage
from planner.targets import common, optimizers, some_layers
from planner.targets.base import by_pipeline_size, has_schedule_of, refusal

_SHAPE = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
)
FLAVORS: Mapping[tuple[int, ...], str] = MappingProxyType(
    {
        (2048, 16, 32, 8, 8192, 128256): "1B",
        (3072, 28, 24, 8, 8192, 128256): "3B",
        (4096, 32, 32, 8, 14336, 128256): "8B",
        (8192, 80, 64, 8, 28672, 128256): "70B",
        (16384, 126, 128, 8, 53248, 128256): "405B",
    }
)
"""torchtitan's name of a Llama 3 by the fields above. Source: torchtitan 0.3.0, models/llama3."""

SCALES = ("rowwise", "mxfp8")
"""How its converters scale 8-bit matmuls. Source: torchtitan 0.3.0, components/quantization."""


def judge(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why torchtitan refuses a layout."""
    return (
        *_trained(job, s),
        *_pipelined(job, s),
        *_parallel(s),
        *_chunks(job, s),
        *some_layers.alike(s),
    )


def _chunks(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return which losses it has not; ChunkedLossWrapper asks for equal chunks of a sequence."""
    tokens = np.asarray(job.recipe.sequence_length) / s.context_parallel_size
    chunks = records.framework("torchtitan").losses["chunked"].num_chunks
    return (
        refusal(
            job.recipe.loss == "fused", "its loss is of all logits or in chunks", "recipe.loss"
        ),
        refusal(
            (np.mod(tokens, chunks) > 0) & (job.recipe.loss == "chunked"),
            "its loss takes a rank's tokens of a sequence in {chunks} equal chunks",
            "recipe.loss",
            hint="--loss standard",
            chunks=chunks,
        ),
    )


def _trained(job: Job, s: Strategy) -> tuple[Breach, ...]:
    return (
        optimizers.adamw(job),
        refusal(
            job.recipe.lora is not None,
            "it trains all weights: its adapters are not read from a plan",
            "recipe.method",
        ),
        refusal(
            common.trains_in_config_dtype(job),
            "its weights are not in the config's dtype beside mixed precision",
            "recipe.weights_dtype",
        ),
        refusal(
            flavor(job.model.config) is None,
            "torchtitan has only Llama 3 of 1B, 3B, 8B, 70B and 405B parameters",
            "model",
        ),
        refusal(np.asarray(s.zero_stage) == ZERO_1, "it has DDP and FSDP, not ZeRO-1"),
        refusal(
            job.recipe.precision not in {"fp32", "bf16", "bf16-mixed", "fp8"},
            "its weights are fp32, bf16, or fp32 computed with in bf16 or in 8 bit",
            "recipe.precision",
        ),
        *_in_8_bit(job),
        refusal(
            job.recipe.attention == "eager",
            "it masks documents, which eager attention cannot",
            "recipe.attention",
        ),
    )


def _in_8_bit(job: Job) -> tuple[Breach, ...]:
    """Return why torchtitan's converters of linears do not run a recipe's matmuls in 8 bit.

    Source: torchtitan 0.3.0, components/quantization: the recipes of Float8LinearConverter and
    MXFP8LinearConverter; `__init__.py`: meant to run under torch.compile for competitive performance.
    """
    recipe, is_8_bit = job.recipe, job.recipe.precision == "fp8"
    return (
        refusal(
            is_8_bit and recipe.fp8_recipe not in SCALES,
            "torchtitan 0.3.0 scales 8-bit matmuls by {known}",
            "recipe.fp8_recipe",
            hint="--fp8-recipe rowwise",
            known=" or ".join(SCALES),
        ),
        refusal(
            is_8_bit and not recipe.compile,
            "rounding to 8 bit is estimated, and pays, where blocks are compiled",
            "recipe.compile",
            hint="--compile",
        ),
    )


def _pipelined(job: Job, s: Strategy) -> tuple[Breach, ...]:
    known = schedules()
    kinds = by_pipeline_size(s, lambda size: len(set(layers_per_stage(job, size))))
    layers = by_pipeline_size(s, lambda size: layers_per_stage(job, size)[0])
    is_piped = np.asarray(s.pipeline_parallel_size) > 1
    is_uneven = (np.asarray(kinds) > 1) | (np.mod(layers, s.virtual_pipeline_size) > 0)
    return (
        refusal(
            is_piped & np.logical_not(has_schedule_of(s, known)),
            "its pipelines run {schedules}",
            schedules=", ".join(known),
        ),
        refusal(is_uneven, "its pipeline stages have as many layers each"),
    )


def _parallel(s: Strategy) -> tuple[Breach, ...]:
    offload = np.asarray(s.offload)
    return (
        refusal(np.asarray(s.expert_parallel_size) > 1, "Llama 3 has no experts"),
        refusal(
            offload == Offload.OPTIMIZER,
            "it offloads the optimizer's states with the parameters",
        ),
        refusal(
            (offload != Offload.NONE) & np.logical_not(s.shards_gradients),
            "it offloads what FSDP shards",
        ),
        refusal(s.is_local, "it averages gradients every step"),
    )


def schedules() -> Mapping[str, str]:
    """Return what torchtitan calls its pipeline schedules."""
    return records.framework("torchtitan").capabilities.pipeline_schedules


def flavor(config: Mapping[str, object]) -> str | None:
    """Return torchtitan's name of a config.json's model; None for one that it has not."""
    if config.get("model_type") != "llama":
        return None
    shape = tuple(config.get(name) for name in _SHAPE)
    return next((flavor for known, flavor in FLAVORS.items() if known == shape), None)
