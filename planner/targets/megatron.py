"""What Megatron-LM's pretrain_gpt.py cannot run, and models that have no arguments there."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from planner.catalog import records
from planner.core.frozen import frozen
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import ZERO_1, Offload, Strategy
from planner.parallel.partition import layers_per_stage
from planner.targets import losses, optimizers, some_layers
from planner.targets.base import by_pipeline_size, has_schedule_of, refusal

_LLAMA_FIELDS = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "max_position_embeddings",
    "vocab_size",
)
_TENSOR_CORE_CHANNELS, _TENSOR_CORE_TOKENS = 16, 8
"""What Transformer Engine's 8-bit matmuls divide: channels of both operands, and rows of tokens."""


_WIDTHS = ("n_embd", "hidden_size", "n_inner", "intermediate_size", "moe_intermediate_size")


@frozen
class Mixture:
    """What config.json of a mixture of experts calls their number and their width."""

    experts: str
    width: str


_QWEN_MIXTURE = Mixture(experts="num_experts", width="moe_intermediate_size")
MIXTURES: Mapping[str, Mixture] = MappingProxyType(
    {
        "mixtral": Mixture(experts="num_local_experts", width="intermediate_size"),
        "qwen2_moe": _QWEN_MIXTURE,
        "qwen3_moe": _QWEN_MIXTURE,
    }
)
"""By model type: those whose router and shared experts have arguments."""

_FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "gpt2": ("n_layer", "n_embd", "n_head", "n_positions", "vocab_size"),
        **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), _LLAMA_FIELDS),
        **{
            name: (*_LLAMA_FIELDS, mixture.experts, mixture.width, "num_experts_per_tok")
            for name, mixture in MIXTURES.items()
        },
    }
)
"""What config.json must say, by model type."""


def judge(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why pretrain_gpt.py refuses a layout."""
    return (
        optimizers.adamw(job),
        refusal(
            job.recipe.lora is not None,
            "Megatron-LM's pretrain_gpt.py has no adapters",
            "recipe.method",
        ),
        losses.standard_alone(
            job,
            "Megatron-LM turns Transformer Engine's fused loss down, and its own fusion holds all"
            " logits in fp32",
        ),
        *_trained(job),
        *_model(job),
        *some_layers.whole_in_host_memory(job, s),
        *divided(job, s),
    )


def divided(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return what Megatron's layers and optimizer refuse of a layout, whatever starts them."""
    return (
        *_parallel(s),
        *some_layers.whole_stages(s),
        *some_layers.modules(job, s),
        *_pipelined(job, s),
        *_heads_shared(job, s),
        *_mixture(job, s),
        *_in_8_bit(job, s),
    )


def _heads_shared(job: Job, s: Strategy) -> tuple[Breach, ...]:
    tensor, (queries, keys) = np.asarray(s.tensor_parallel_size), _heads(job.model.config)
    return (
        refusal(
            (queries % tensor > 0) | (keys % tensor > 0),
            "{queries} attention heads are not shared out evenly by {tensor}",
            queries=queries,
            tensor=s.tensor_parallel_size,
        ),
    )


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
    is_dealt = bool(job.pipeline_layout)
    return (
        refusal(
            is_piped & np.logical_not(has_schedule_of(s, schedules)),
            "its pipelines run {schedules}",
            schedules=" or ".join(schedules),
        ),
        refusal(
            (np.asarray(by_pipeline_size(s, kinds_between)) > 1) & (not is_dealt),
            "only its first and last pipeline stage may differ in layers",
        ),
        refusal(
            (np.asarray(s.virtual_pipeline_size) > 1)
            & (by_pipeline_size(s, kinds) > 1)
            & (not is_dealt),
            "its interleaved stages are equal",
        ),
    )


def _trained(job: Job) -> tuple[Breach, ...]:
    return (
        refusal(
            job.recipe.precision in {"tf32", "bf16"},
            "its weights are 32 bit, or 16 bit with a 32-bit copy",
            "recipe.precision",
        ),
        refusal(
            job.model.task != "causal-lm",
            "pretrain_gpt.py predicts the next token",
            "recipe.task",
        ),
    )


def _model(job: Job) -> tuple[Breach, ...]:
    config: Mapping[str, Any] = job.model.config
    needed = _FIELDS.get(str(config.get("model_type")), ())
    missing = [name for name in needed if not isinstance(config.get(name), int)]
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    return (
        refusal(
            not needed,
            "its arguments are known for models like GPT-2, Llama, Mixtral and Qwen's mixtures",
            "model",
        ),
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
    )


def _heads(config: Mapping[str, Any]) -> tuple[int, int]:
    queries = config.get("n_head", config.get("num_attention_heads"))
    queries = queries if isinstance(queries, int) else 1
    return queries, config.get("num_key_value_heads") or queries


def _mixture(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return what of experts has no arguments, or would be refused when the job starts.

    Source: Megatron-LM core/transformer/moe/moe_layer.py: training with tensor parallelism and
    without sequence parallelism is a ValueError.
    """
    config: Mapping[str, Any] = job.model.config
    is_mixture = config.get("model_type") in MIXTURES
    is_some = config.get("decoder_sparse_step", 1) != 1 or bool(config.get("mlp_only_layers"))
    is_divided = np.asarray(s.tensor_parallel_size) > 1
    return (
        refusal(
            np.asarray(s.expert_parallel_size > 1) & (not is_mixture),
            "a model without experts has none to divide",
        ),
        refusal(
            is_mixture and is_some,
            "its arguments are written for mixtures with experts in every layer",
            "model",
        ),
        refusal(
            is_divided & np.logical_not(s.sequence_parallel) & is_mixture,
            "it trains experts under tensor parallelism with sequence parallelism alone",
        ),
    )


def _in_8_bit(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return what Transformer Engine does not multiply in 8 bit.

    Source: Transformer Engine's assert_dim_for_fp8_exec: 8 divides the rows of a matmul's input, 16
    its channels.
    """
    tensor, gpu = np.asarray(s.tensor_parallel_size), job.cluster.gpu
    config, is_8_bit = job.model.config, job.recipe.precision == "fp8"
    widths = [value for name in _WIDTHS if isinstance(value := config.get(name), int)]
    rows = np.asarray(s.micro_batch_size * job.recipe.sequence_length) / s.context_parallel_size
    is_odd = [np.mod(width, _TENSOR_CORE_CHANNELS * tensor) > 0 for width in widths]
    return (
        refusal(
            is_8_bit and "fp8" not in gpu.peak_flops,
            "{gpu} does not multiply in 8 bit",
            "recipe.precision",
            gpu=gpu.name,
        ),
        refusal(
            is_8_bit & np.logical_or.reduce(is_odd, axis=0),
            "{tensor} tensor-parallel ranks leave channels that 8-bit matmuls do not take: multiples"
            " of {channels}",
            tensor=s.tensor_parallel_size,
            channels=_TENSOR_CORE_CHANNELS,
        ),
        refusal(
            is_8_bit
            & (np.mod(rows, _TENSOR_CORE_TOKENS * np.where(s.sequence_parallel, tensor, 1)) > 0),
            "8-bit matmuls take tokens in multiples of {tokens}",
            tokens=_TENSOR_CORE_TOKENS,
        ),
    )


def rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the model says of its rotary embedding, under the names of transformers 5."""
    found = {"rope_theta": config.get("rope_theta") or 10_000}
    found |= config.get("rope_scaling") or {}
    found |= config.get("rope_parameters") or {}
    return found | {"rope_type": found.get("rope_type", found.get("type", "default"))}
