"""What Megatron-LM's pretrain_gpt.py cannot run, and models that have no arguments there."""

import numpy as np

from planner.catalog import records
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import ZERO_1, Offload, Strategy
from planner.parallel.partition import layers_per_stage
from planner.targets import losses, optimizers, some_layers
from planner.targets.base import by_pipeline_size, has_schedule_of, refusal
from planner.targets.megatron_models import reading, unsaid

_TENSOR_CORE_CHANNELS, _TENSOR_CORE_TOKENS = 16, 8
"""What Transformer Engine's 8-bit matmuls divide: channels of both operands, and rows of tokens."""

_WIDTHS = (
    "n_embd",
    "hidden_size",
    "n_inner",
    "intermediate_size",
    "ffn_hidden_size",
    "moe_intermediate_size",
)


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
        *_model(job, s),
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
    """Return what of attention heads is not shared out: keys and values may be fewer than the ranks, whose multiple they are.

    Source: megatron-core transformer_config.py: num_query_groups must be a multiple or divisor of tensor_model_parallel_size.
    """
    tensor = np.asarray(s.tensor_parallel_size)
    found = next((part.attention for part in job.model.blocks if part.attention), None)
    queries, keys = (found.num_heads, found.num_key_value_heads) if found else (1, 1)
    return (
        refusal(
            (queries % tensor > 0) | ((keys % tensor > 0) & (tensor % keys > 0)),
            "{queries} attention heads, {keys} of keys and values, are not shared out evenly by {tensor}",
            queries=queries,
            keys=keys,
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


def _model(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return what of the model has no arguments, or none beside the layout.

    Source of what context parallelism divides: Transformer Engine's dot product attention.
    """
    obstacle = unsaid(job.model)
    found = None if obstacle else reading(job.model)
    has_window = found is not None and any(found.windows(job.recipe.sequence_length))
    has_sinks = found is not None and found.family.has_sinks
    return (
        refusal(bool(obstacle), "{obstacle}", "model", obstacle=obstacle),
        refusal(
            (np.asarray(s.context_parallel_size) > 1) & (has_window or has_sinks),
            "it rings no keys and values of attention within a window, or with sinks",
            hint="--cp 1",
        ),
    )


def _mixture(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return what of experts has no arguments, or would be refused when the job starts.

    Source: Megatron-LM core/transformer/moe/moe_layer.py: training with tensor parallelism and
    without sequence parallelism is a ValueError.
    """
    is_mixture = job.model.has_experts
    is_divided = np.asarray(s.tensor_parallel_size) > 1
    return (
        refusal(
            np.asarray(s.expert_parallel_size > 1) & (not is_mixture),
            "a model without experts has none to divide",
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
