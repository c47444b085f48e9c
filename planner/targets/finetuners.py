"""What axolotl and LLaMA-Factory both refuse: transformers' Trainer under a configuration, with PEFT or without."""

import numpy as np

from planner.catalog.records import capability_version
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import ZERO_1, Recompute, Strategy
from planner.parallel.compiled import compiles_head
from planner.targets import adapters, common, deepspeed, losses, optimizers, some_layers, torchrun
from planner.targets.base import refusal

_HOPPER = (9, 0)
"""Compute capability from which the planner's FlashAttention is a version of its own."""


def judge(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why neither tool trains a layout; what one of them alone refuses is in its own module."""
    recipe, lora = job.recipe, job.recipe.lora
    return (
        refusal(
            job.model.task != "causal-lm",
            "it is configured here for models that go on with a text, not for {task}",
            "recipe.task",
            task=job.model.task,
        ),
        refusal(
            not job.model.is_pretrained,
            "it is configured here to train weights further, and these start at random",
            "model",
        ),
        common.recomputed(job, s),
        refusal(
            np.asarray(s.pipeline_parallel_size) > 1, "it divides no layers over pipeline stages"
        ),
        refusal(
            np.asarray(s.recompute) == Recompute.SELECTIVE,
            "Trainer recomputes whole blocks or nothing",
        ),
        refusal(s.is_local, "it averages gradients every step"),
        refusal(
            lora is not None and lora.alpha != int(lora.alpha),
            "its alpha is a whole number",
            "recipe.lora.alpha",
        ),
        refusal(
            np.logical_and(recipe.compile, np.logical_not(compiles_head(job, s))),
            "it compiles a model as a whole, and the plan's blocks one by one",
            "recipe.compile",
            hint="--no-compile",
        ),
        *common.compiled(job, s),
        refusal(
            recipe.loss == "chunked",
            "its losses hold all logits, or are Liger's",
            "recipe.loss",
            hint="--loss fused",
        ),
        *losses.lighter(job),
        *some_layers.alike(s),
        *adapters.judge(job, s),
        *_optimizer(job, s),
        *(deepspeed.zero(s) if job.framework.name == "deepspeed" else _of_torch(job, s)),
    )


def _of_torch(job: Job, s: Strategy) -> tuple[Breach, ...]:
    return (
        refusal(np.asarray(s.zero_stage) == ZERO_1, "it has ZeRO-1 through DeepSpeed alone"),
        *torchrun.fsdp_offload(s),
        common.unused_by_backward(job, s),
    )


def _optimizer(job: Job, s: Strategy) -> tuple[Breach, ...]:
    if job.framework.name == "deepspeed":
        return (optimizers.adamw(job),)
    name = job.recipe.optimizer
    return (
        refusal(
            not optimizers.optimizers()[name].in_trainer,
            "transformers' Trainer has no {name} of the same states",
            "recipe.optimizer",
            hint="--optimizer adamw",
            name=name,
        ),
        *optimizers.judge(job, s),
        optimizers.after_backward(job),
    )


def has_flash_2(job: Job) -> bool:
    """Return whether a plan's FlashAttention is the second version, which a tool may have alone."""
    capability = capability_version(job.cluster.gpu.compute_capability)
    return job.recipe.attention == "flash" and capability < _HOPPER
