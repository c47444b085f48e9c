"""What transformers' Trainer cannot run."""

import numpy as np

from planner.domain.breach import Breach
from planner.domain.job import POST_TRAINING, Job
from planner.domain.strategy import ZERO_1, Recompute, Strategy
from planner.targets import (
    adapters,
    common,
    deepspeed,
    losses,
    optimizers,
    post_training,
    some_layers,
    torchrun,
)
from planner.targets.base import refusal


def judge(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why Trainer, with DeepSpeed behind it where the job is for that, refuses a layout."""
    divides = refusal(s.divides_model, "Trainer divides the data, not the model, over GPUs")
    if job.framework.name == "deepspeed":
        return (
            common.precision(job),
            common.recomputed(job, s),
            optimizers.adamw(job),
            *common.compiled(job, s),
            divides,
            *_losses(job),
            *some_layers.alike(s),
            *adapters.judge(job, s),
            *deepspeed.zero(s),
        )
    return (
        common.precision(job),
        common.recomputed(job, s),
        *common.compiled(job, s),
        divides,
        *optimizers.judge(job, s),
        optimizers.one_alone(job),
        optimizers.after_backward(job),
        *_losses(job),
        *some_layers.alike(s),
        *adapters.judge(job, s),
        refusal(np.asarray(s.zero_stage) == ZERO_1, "Trainer has ZeRO-1 through DeepSpeed alone"),
        refusal(s.is_hybrid, "its FSDP shards over all GPUs, without replicas"),
        refusal(
            np.asarray(s.recompute) == Recompute.SELECTIVE,
            "Trainer recomputes whole blocks or nothing",
        ),
        *torchrun.fsdp_offload(s),
        refusal(
            s.shards_gradients & (job.recipe.precision == "bf16-mixed" and _trains_16_bit(job)),
            "Accelerate makes fp32 of the 16-bit weights that Trainer has it shard and train",
        ),
        refusal(
            np.logical_not(s.shards_gradients) & _leaves_experts_in_fp32(job),
            "autocast leaves the experts' matmuls in fp32, which torchrun's script rounds",
        ),
        common.loss_scale(job),
        refusal(s.is_local, "Trainer averages gradients every step"),
    )


def _losses(job: Job) -> tuple[Breach, ...]:
    own = job.recipe.job in POST_TRAINING
    return post_training.judge(job) if own else losses.lighter(job)


def _leaves_experts_in_fp32(job: Job) -> bool:
    is_mixed = job.recipe.precision in {"bf16-mixed", "fp16-mixed"}
    return (
        job.model.has_experts and is_mixed and job.recipe.lora is None and not _trains_16_bit(job)
    )


def _trains_16_bit(job: Job) -> bool:
    lora = job.recipe.lora
    return job.is_in_config_dtype if lora is None else lora.is_half
