"""What nanotron's own Llama cannot run."""

import numpy as np

from planner.catalog import records
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import ZERO_1, Offload, Strategy
from planner.targets import losses, optimizers, some_layers
from planner.targets.base import has_schedule_of, refusal
from planner.targets.megatron_models import reading, unsaid

_MODEL_TYPES = ("llama", "mistral")


def judge(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why nanotron's run_train.py refuses a layout."""
    return (
        optimizers.adamw(job),
        losses.standard_alone(job, "nanotron has no loss but its own"),
        refusal(job.recipe.lora is not None, "nanotron has no adapters", "recipe.method"),
        refusal(
            job.recipe.precision != "bf16-mixed",
            "its files train in bf16 with gradients added up in fp32",
            "recipe.precision",
        ),
        refusal(
            job.recipe.attention == "eager",
            "its attention is FlashAttention's",
            "recipe.attention",
            hint="--attention flash",
        ),
        refusal(job.recipe.compile, "it does not compile its layers", "recipe.compile"),
        *_model(job),
        *_parallel(job, s),
        *some_layers.alike(s),
    )


def _model(job: Job) -> tuple[Breach, ...]:
    """Return what of the model its LlamaConfig does not say.

    Source: huggingface/nanotron src/nanotron/config/models_config.py LlamaConfig, models/llama.py, which leaves
    rope_scaling and attention_bias unread.
    """
    kind, found = job.model.model_type, reading(job.model)
    if kind not in _MODEL_TYPES or found is None:
        known = " and ".join(_MODEL_TYPES)
        unknown = "its files are written for models of type {known}, not {kind}"
        return (refusal(broken=True, message=unknown, field="model", known=known, kind=kind[:40]),)
    attention = job.model.blocks[0].attention
    is_narrow = attention is not None and attention.query_size != job.model.hidden_size
    unread = unsaid(job.model)
    if unread:
        return (refusal(broken=True, message="{unread}", field="model", unread=unread),)
    obstacles = {
        "its model has no scaled rotary embeddings": found.rope["rope_type"] != "default",
        "its model has no biases": any(found.biases),
        "its model attends to all of a sequence": any(found.windows(job.recipe.sequence_length)),
        "its heads share out the hidden channels": is_narrow,
        "its MLP is gated by silu": found.activation != "silu",
        "it predicts the next token": job.model.task != "causal-lm",
    }
    return tuple(refusal(broken, reason, "model") for reason, broken in obstacles.items())


def _parallel(job: Job, s: Strategy) -> tuple[Breach, ...]:
    schedules = records.framework("nanotron").capabilities.pipeline_schedules
    tensor = np.asarray(s.tensor_parallel_size)
    attention = job.model.blocks[0].attention
    keys = attention.num_key_value_heads if attention else 1
    return (
        refusal(
            np.asarray(s.zero_stage) > ZERO_1,
            "its optimizer is ZeRO-1: it shards no gradients or parameters",
        ),
        refusal(
            (np.asarray(s.zero_stage) == ZERO_1) & (s.data_parallel_replicate_size > 1),
            "its optimizer shards over all data-parallel ranks",
        ),
        refusal(np.asarray(s.offload) != Offload.NONE, "it keeps all states on the GPU"),
        refusal(s.is_local, "it averages gradients every step"),
        refusal(
            (np.asarray(s.pipeline_parallel_size) > 1)
            & np.logical_not(has_schedule_of(s, schedules)),
            "its pipelines run {schedules}",
            schedules=" or ".join(schedules),
        ),
        refusal(
            bool(job.pipeline_layout),
            "it deals blocks to stages by itself",
            "strategy.pipeline_layout",
        ),
        refusal(
            np.asarray(s.context_parallel_size) > 1,
            "its Llama divides no sequence but between tensor-parallel ranks",
        ),
        refusal(np.asarray(s.expert_parallel_size) > 1, "its Llama has no experts"),
        refusal(
            keys % tensor > 0,
            "{keys} heads of keys and values are not shared out evenly by {tensor}",
            keys=keys,
            tensor=s.tensor_parallel_size,
        ),
    )
