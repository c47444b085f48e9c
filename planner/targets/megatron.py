"""What Megatron-LM's pretrain_gpt.py cannot run, and models that have no arguments there."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.catalog import records
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import ZERO_1, Offload, Strategy
from planner.parallel.partition import layers_per_stage
from planner.targets.base import by_pipeline_size, has_schedule_of, refusal
from planner.targets.families import heads

_LLAMA_FIELDS = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "max_position_embeddings",
    "vocab_size",
)
_FIELDS = {
    "gpt2": ("n_layer", "n_embd", "n_head", "n_positions", "vocab_size"),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), _LLAMA_FIELDS),
}
"""What config.json must say, by model type."""


def judge(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why pretrain_gpt.py refuses a layout."""
    return (*_parallel(s), *_pipelined(job, s), *_trained(job, s), *_model(job, s))


def _parallel(s: Strategy) -> tuple[Breach, ...]:
    stage, offload = np.asarray(s.zero_stage), np.asarray(s.offload)
    return (
        refusal(
            stage > ZERO_1,
            "the distributed optimizer is ZeRO-1: it shards no gradients or parameters",
        ),
        refusal(
            (stage == ZERO_1) & (s.data_parallel_replicate_size > 1),
            "its distributed optimizer shards over all data-parallel ranks",
        ),
        refusal(
            s.offloads_parameters | ((offload == Offload.OPTIMIZER) & (stage == 0)),
            "it offloads the optimizer's states alone, and shards them",
        ),
        refusal(s.is_local, "it averages gradients every step"),
    )


def _pipelined(job: Job, s: Strategy) -> tuple[Breach, ...]:
    schedules = records.framework("megatron").capabilities.pipeline_schedules

    def kinds(size: int) -> int:
        return len(set(layers_per_stage(job, size)))

    def kinds_between(size: int) -> int:
        return len(set(layers_per_stage(job, size)[1:-1]))

    is_piped = np.asarray(s.pipeline_parallel_size) > 1
    return (
        refusal(
            is_piped & np.logical_not(has_schedule_of(s, schedules)),
            "its pipelines run {schedules}",
            schedules=" or ".join(schedules),
        ),
        refusal(
            np.asarray(by_pipeline_size(s, kinds_between)) > 1,
            "only its first and last pipeline stage may differ in layers",
        ),
        refusal(
            (np.asarray(s.virtual_pipeline_size) > 1) & (by_pipeline_size(s, kinds) > 1),
            "its interleaved stages are equal",
        ),
    )


def _trained(job: Job, s: Strategy) -> tuple[Breach, ...]:
    return (
        refusal(
            job.recipe.precision in {"tf32", "bf16"},
            "its weights are 32 bit, or 16 bit with a 32-bit copy",
            "recipe.precision",
        ),
        refusal(
            np.asarray(s.expert_parallel_size) > 1,
            "its arguments are written for models without experts",
        ),
        refusal(
            job.model.task != "causal-lm",
            "pretrain_gpt.py predicts the next token",
            "recipe.task",
        ),
    )


def _model(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return what of the model has no arguments here."""
    config: Mapping[str, Any] = job.model.config
    needed = _FIELDS.get(str(config.get("model_type")), ())
    missing = [name for name in needed if not isinstance(config.get(name), int)]
    tensor, (queries, keys) = np.asarray(s.tensor_parallel_size), heads(config)
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    return (
        refusal(not needed, "its arguments are known for models like GPT-2 and Llama", "model"),
        refusal(
            bool(missing),
            "config.json does not say {missing}",
            "model",
            missing=", ".join(missing),
        ),
        refusal(
            rope(config)["rope_type"] not in {"default", "llama3"},
            "its kind of rotary embedding has other arguments",
            "model",
        ),
        refusal(
            isinstance(window, int) and window < job.recipe.sequence_length,
            "attention within a window has other arguments",
            "model",
        ),
        refusal(
            bool(config.get("attention_bias")),
            "biases of attention's output have no argument",
            "model",
        ),
        refusal(
            (queries % tensor > 0) | (keys % tensor > 0),
            "{queries} attention heads are not shared out evenly by {tensor}",
            queries=queries,
            tensor=s.tensor_parallel_size,
        ),
    )


def rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the model says of its rotary embedding, under the names of transformers 5."""
    found = {"rope_theta": config.get("rope_theta") or 10_000}
    found |= config.get("rope_scaling") or {}
    found |= config.get("rope_parameters") or {}
    return found | {"rope_type": found.get("rope_type", found.get("type", "default"))}
