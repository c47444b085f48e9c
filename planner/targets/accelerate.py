"""What Accelerate cannot run."""

import numpy as np

from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import ZERO_1, Recompute, Strategy
from planner.targets import adapters, common, deepspeed, losses, optimizers, some_layers, torchrun
from planner.targets.base import only_where, refusal
from planner.targets.families import unusual


def judge(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why Accelerate, with DeepSpeed behind it where the job is for that, refuses a layout."""
    if job.framework.name == "deepspeed":
        divides = "with DeepSpeed it divides the data, not the model, over GPUs"
        return (
            common.precision(job),
            common.recomputed(job, s),
            optimizers.adamw(job),
            *losses.lighter(job),
            *common.compiled(job, s),
            *some_layers.alike(s),
            *adapters.judge(job, s),
            refusal(s.divides_model, divides),
            *deepspeed.zero(s),
        )
    return (
        common.precision(job),
        common.recomputed(job, s),
        *optimizers.judge(job, s),
        optimizers.one_alone(job),
        optimizers.after_backward(job),
        *some_layers.alike(s),
        *losses.lighter(job),
        *common.compiled(job, s),
        *adapters.judge(job, s),
        *_data_parallel(job, s),
        *only_where(s.divides_model, _divided, job, s),
    )


def _data_parallel(job: Job, s: Strategy) -> tuple[Breach, ...]:
    stage, replicas = np.asarray(s.zero_stage), np.asarray(s.data_parallel_replicate_size)
    return (
        refusal(
            np.asarray(s.recompute) == Recompute.SELECTIVE,
            "Accelerate recomputes whole blocks or nothing",
        ),
        *torchrun.fsdp_offload(s),
        refusal(
            (stage == ZERO_1) & (replicas > 1) & (s.data_parallel_shard_size > 1),
            "ZeRO-1 divides the optimizer's states over all data-parallel ranks",
        ),
        refusal(
            s.is_local & (stage > 0),
            "its LocalSGD averages parameters between whole replicas, without ZeRO",
        ),
        common.loss_scale(job),
        common.unused_by_backward(job, s),
        refusal(
            s.is_local & (job.recipe.precision == "fp16-mixed"),
            "LocalSGD averages in the precision of the parameters, not with a loss scale",
        ),
    )


def _divided(job: Job, s: Strategy) -> tuple[Breach, ...]:
    tensor, pieces = np.asarray(s.tensor_parallel_size), 2 * np.asarray(s.context_parallel_size)
    tokens, obstacle, config = job.recipe.sequence_length, unusual(job), job.model.config
    return (
        losses.standard_alone(job),
        refusal(
            (tensor > 1) & s.shards_gradients,
            "Accelerate 1.15 shards no model that transformers 5 divides by tensor parallelism",
        ),
        refusal(
            tensor > 1,
            "transformers divides by tensor parallelism only the weights that it loads, not random"
            " ones",
        ),
        refusal(np.asarray(s.pipeline_parallel_size) > 1, "it trains without pipelines"),
        refusal(np.asarray(s.expert_parallel_size) > 1, "it does not divide experts over GPUs"),
        refusal(obstacle is not None, "{obstacle}", obstacle=obstacle),
        refusal(
            config.get("model_type") == "gpt2",
            "Accelerate makes only attention modules called self_attn causal for a part of a sequence",
        ),
        refusal(
            _has_window(job), "Accelerate divides no sequence where a layer has a sliding window"
        ),
        refusal(
            np.logical_not(s.shards_gradients),
            "it divides a sequence where FSDP shards the parameters (ZeRO-2 and 3) alone",
        ),
        refusal(
            job.recipe.attention != "sdpa",
            "it divides a sequence in PyTorch's own attention (sdpa) alone",
        ),
        refusal(
            tokens % pieces > 0,
            "{pieces} pieces of a sequence do not divide {tokens} tokens",
            pieces=pieces,
            tokens=tokens,
        ),
        refusal(
            np.asarray(s.data_parallel_replicate_size) > 1,
            "a sequence is divided over GPUs that share all else, not within replicas",
        ),
    )


def _has_window(job: Job) -> bool:
    config = job.model.config
    if config.get("model_type") == "mistral":
        return config.get("sliding_window", "transformers' own") is not None
    return bool(config.get("use_sliding_window"))
