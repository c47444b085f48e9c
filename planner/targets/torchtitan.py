"""What torchtitan's own models cannot run."""

from collections.abc import Mapping

import numpy as np

from planner.catalog import records
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import ZERO_1, Offload, Strategy
from planner.parallel.partition import layers_per_stage
from planner.targets import common, families, optimizers, some_layers
from planner.targets.base import by_pipeline_size, has_schedule_of, refusal
from planner.targets.titan_models import obstacle, titan_model

SCALES = ("rowwise", "mxfp8")
"""How its converters scale 8-bit matmuls. Source: torchtitan 0.3.0, components/quantization."""

_MASKED_BLOCK = 128
"""Tokens of a block of FlexAttention's mask. Source: PyTorch 2.14, torch/nn/attention/flex_attention.py; tried on CPUs."""


def judge(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why torchtitan refuses a layout."""
    return (
        *_trained(job, s),
        *_pipelined(job, s),
        *_parallel(job, s),
        *_experts(job, s),
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
    why = _obstacle(job)
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
        refusal(why != "", "{why}", "model", why=why),
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


def _obstacle(job: Job) -> str:
    """Return why torchtitan's parts do not make the model, or not for this task; "" where they do."""
    config, known = job.model.config, titan_model(job.model.config)
    if job.model.task != "causal-lm":
        return f"torchtitan trains causal-lm, not {job.model.task}"
    has_windows = known is None or bool(known.flavors)
    return obstacle(config) or ("" if has_windows else families.windowed(job)) or ""


def _pipelined(job: Job, s: Strategy) -> tuple[Breach, ...]:
    known = schedules()
    is_piped = np.asarray(s.pipeline_parallel_size) > 1
    kinds = by_pipeline_size(s, lambda size: len(set(layers_per_stage(job, size))))
    layers = by_pipeline_size(s, lambda size: layers_per_stage(job, size)[0])
    chunks = np.asarray(s.virtual_pipeline_size)
    is_uneven = (chunks > 1) & ((np.asarray(kinds) > 1) | (np.mod(layers, chunks) > 0))
    return (
        refusal(
            is_piped & np.logical_not(has_schedule_of(s, known)),
            "its pipelines run {schedules}",
            schedules=", ".join(known),
        ),
        refusal(is_uneven, "the chunks of its pipeline stages have as many layers each"),
        refusal(
            is_piped & bool(job.model.config.get("tie_word_embeddings")),
            "its pipelines do not tie the head to the embedding on another stage",
        ),
    )


def _parallel(job: Job, s: Strategy) -> tuple[Breach, ...]:
    offload, parts = np.asarray(s.offload), np.asarray(s.context_parallel_size)
    return (
        refusal(
            (parts > 1) & (job.recipe.attention == "flash"),
            "it divides sequences with FlexAttention alone",
            "recipe.attention",
            hint="--attention sdpa",
        ),
        refusal(
            (parts > 1) & (np.mod(job.recipe.sequence_length, _MASKED_BLOCK * parts) > 0),
            "each part of a sequence is blocks of {block} tokens, which FlexAttention masks",
            "recipe.sequence_length",
            block=_MASKED_BLOCK,
        ),
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


def _experts(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return what it does not do with the experts of a mixture.

    Source: torchtitan 0.3.0, distributed/parallel_dims.py: expert-parallel groups take shards, context and tensor
    ranks, and no replicas; models/common/moe_sharding.py, moe.py: dealt experts are whole, and multiply in bf16.
    """
    dealt, known = np.asarray(s.expert_parallel_size), titan_model(job.model.config)
    ranks = s.data_parallel_shard_size * s.context_parallel_size * s.tensor_parallel_size
    return (
        refusal(
            np.mod(ranks, dealt) > 0,
            "it deals experts over {ranks} ranks of shards, sequences and tensors, of which {dealt} is no part",
            "strategy.expert_parallel_size",
            ranks=ranks,
            dealt=dealt,
        ),
        refusal(
            (dealt > 1) & (np.asarray(s.ranks_per_expert) > 1),
            "experts that it deals out are not divided",
            "strategy.expert_tensor_parallel_size",
            hint="--expert-tp 1",
        ),
        refusal(
            (dealt == 1) & (np.asarray(s.ranks_per_expert) != s.tensor_parallel_size),
            "experts that it does not deal out are divided as all else",
            "strategy.expert_tensor_parallel_size",
        ),
        refusal(
            known is not None and known.has_experts and job.recipe.precision == "fp32",
            "its experts multiply in bf16",
            "recipe.precision",
            hint="--precision bf16-mixed",
        ),
    )


def schedules() -> Mapping[str, str]:
    """Return what torchtitan calls its pipeline schedules."""
    return records.framework("torchtitan").capabilities.pipeline_schedules
