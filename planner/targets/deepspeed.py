"""What DeepSpeed cannot run."""

import numpy as np

from planner.catalog import records
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import (
    ZERO_1,
    ZERO_3,
    Offload,
    PipelineSchedule,
    Recompute,
    Strategy,
)
from planner.targets import common, losses, optimizers, some_layers
from planner.targets.base import has_schedule_of, only_where, refusal
from planner.targets.families import unusual


def judge(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why DeepSpeed's own script refuses a layout."""
    others = s.tensor_parallel_size * s.context_parallel_size * s.expert_parallel_size
    return (
        optimizers.adamw(job),
        common.precision(job),
        common.recomputed(job, s),
        *losses.lighter(job),
        *common.compiled(job, s),
        *some_layers.alike(s),
        refusal(
            job.recipe.lora is not None,
            "PEFT's adapters are in the files of trainer",
            "recipe.method",
        ),
        refusal(
            np.asarray(others) > 1,
            "its script divides data and layers over GPUs, not matrices, sequences or experts",
        ),
        *only_where(np.asarray(s.pipeline_parallel_size) > 1, pipeline, job, s),
        *zero(s),
        common.from_text_alone(job),
    )


def pipeline(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why DeepSpeed cannot run a pipeline.

    Source: DeepSpeed 0.19.8, runtime/pipe: engine.py asserts a ZeRO stage below 2 and trains by
    TrainSchedule, which is 1F1B; module.py gives each rank consecutive layers.
    Leaves out: DualPipeVModule, whose schedule has no estimates.
    """
    obstacle = unusual(job)
    schedules = records.framework("deepspeed").capabilities.pipeline_schedules
    return (
        losses.standard_alone(job),
        refusal(obstacle is not None, "{obstacle}", obstacle=obstacle),
        refusal(
            np.asarray(s.zero_stage) > ZERO_1, "DeepSpeed's PipelineModule allows ZeRO-1 at most"
        ),
        refusal(
            np.logical_not(has_schedule_of(s, schedules)),
            "DeepSpeed's PipelineModule runs {known}, not {schedule}",
            known=" or ".join(schedules),
            schedule=PipelineSchedule.name_of(s.pipeline_schedule),
        ),
        refusal(
            np.asarray(s.virtual_pipeline_size) > 1,
            "DeepSpeed's PipelineModule has one chunk of layers on each GPU",
        ),
    )


def zero(s: Strategy) -> tuple[Breach, ...]:
    """Return why DeepSpeed's ZeRO cannot run a layout, however its model is divided."""
    stage, offload = np.asarray(s.zero_stage), np.asarray(s.offload)
    return (
        refusal(
            (stage > 0) & (s.data_parallel_replicate_size > 1),
            "ZeRO shards over all data-parallel GPUs, without replicas",
        ),
        refusal(
            np.asarray(s.recompute) == Recompute.SELECTIVE,
            "transformers recomputes whole blocks or nothing",
        ),
        refusal(
            (offload != Offload.NONE) & (stage == 0),
            "DeepSpeed offloads what ZeRO shards, and here nothing is sharded",
        ),
        refusal(
            s.offloads_parameters & (stage < ZERO_3),
            "DeepSpeed offloads parameters with ZeRO-3 alone",
        ),
        refusal(s.is_local, "it averages gradients every step"),
    )
