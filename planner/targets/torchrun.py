"""What the script of PyTorch alone cannot run."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.catalog import records
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import (
    ZERO_1,
    Offload,
    PipelineSchedule,
    Recompute,
    Strategy,
)
from planner.parallel.partition import layers_per_stage
from planner.parallel.pipeline_schedules import chunks_are_defined, splits_backward
from planner.targets import adapters, common, losses, optimizers, some_layers
from planner.targets.base import by_pipeline_size, has_schedule_of, only_where, refusal
from planner.targets.families import family, heads, undividable, windowed

_FILLED = ("Schedule1F1B", "ScheduleZBVZeroBubble")
"""Classes that ask for a micro-batch for each stage."""
_IN_ROUNDS = ("ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble")
"""Classes that divide micro-batches into equal rounds."""

_GROUPED_COLUMNS = 8
"""Of a 16-bit matrix, those that fill 16 bytes."""


def judge(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why the script of PyTorch alone refuses a layout."""
    return (
        common.precision(job),
        common.recomputed(job, s),
        *optimizers.judge(job, s, has_torchao=True),
        optimizers.in_backward(job, s),
        some_layers.undivided(s),
        *some_layers.checkpoints_in_host_memory(s),
        *losses.lighter(job),
        *common.compiled(job, s),
        *adapters.judge(job, s),
        *_frozen(job, s),
        *_data_parallel(job, s),
        *only_where(s.divides_model, _divided, job, s),
        *only_where(np.asarray(s.pipeline_parallel_size) > 1, _pipelined, job, s),
        common.from_text_alone(job),
    )


def _frozen(job: Job, s: Strategy) -> tuple[Breach, ...]:
    lora = job.recipe.lora
    return (
        refusal(
            lora is not None and lora.is_quantised,
            "adapters beside quantised weights are in the files of trainer",
            "recipe.method",
        ),
        refusal(
            (np.asarray(s.recompute) == Recompute.SELECTIVE) & (lora is not None),
            "selective recompute is of models without adapters",
        ),
    )


def _data_parallel(job: Job, s: Strategy) -> tuple[Breach, ...]:
    stage, replicas = np.asarray(s.zero_stage), np.asarray(s.data_parallel_replicate_size)
    shards, is_whole = s.data_parallel_shard_size, np.logical_not(s.divides_model)
    is_selective = np.asarray(s.recompute) == Recompute.SELECTIVE
    return (
        *fsdp_offload(s),
        refusal(
            s.is_local & ((stage > 0) | s.divides_model),
            "parameters are averaged between whole replicas, without ZeRO",
        ),
        refusal(
            (stage == ZERO_1) & (replicas > 1) & is_whole,
            "ZeRO-1 divides the optimizer's states over all data-parallel ranks",
        ),
        common.loss_scale(job),
        common.unused_by_backward(job, s),
        refusal((stage == 0) & (shards > 1), "shards need a ZeRO stage"),
        refusal(
            is_selective & (job.recipe.attention == "flash"),
            "selective recompute keeps what PyTorch's own attention returns",
        ),
    )


def fsdp_offload(s: Strategy) -> tuple[Breach, ...]:
    """Return what FSDP cannot have wait in host memory."""
    offload = np.asarray(s.offload)
    return (
        refusal(
            offload == Offload.OPTIMIZER,
            "FSDP moves the parameters to host memory together with the optimizer's states",
        ),
        refusal(
            (offload != Offload.NONE) & np.logical_not(s.shards_gradients),
            "only FSDP (ZeRO-2 and 3) has parameters wait in host memory",
        ),
    )


def _divided(job: Job, s: Strategy) -> tuple[Breach, ...]:
    tensor, context = np.asarray(s.tensor_parallel_size), np.asarray(s.context_parallel_size)
    tokens, obstacle = job.recipe.sequence_length, undividable(job)
    queries, keys = heads(job.model.config)
    known, short = family(job.model.config), windowed(job)
    pieces = np.where(context > 1, 2 * context, 1)
    is_uneven = s.sequence_parallel & (tokens % (context * tensor) > 0)
    is_hybrid = (np.asarray(s.data_parallel_replicate_size) > 1) & (np.asarray(s.zero_stage) > 0)
    return (
        losses.standard_alone(job),
        refusal(np.asarray(s.expert_parallel_size) > 1, "it does not divide experts over GPUs"),
        refusal(
            common.trains_in_config_dtype(job),
            "the parts of a model start in fp32, or in bf16 without mixed precision",
            "recipe.weights_dtype",
        ),
        refusal(obstacle is not None, "{obstacle}", obstacle=obstacle),
        refusal(
            (tensor > 1) & (known is not None and known.keeps_attention_whole),
            "transformers' plan divides no attention of {kind} by tensor parallelism",
            kind=job.model.model_type,
        ),
        _experts_narrow(job, s),
        refusal((context > 1) & (short is not None), "{short}", short=short),
        refusal(
            (queries % tensor > 0) | (keys % tensor > 0),
            "{tensor} tensor-parallel ranks do not divide {queries} heads, {keys} of keys",
            tensor=s.tensor_parallel_size,
            queries=queries,
            keys=keys,
        ),
        refusal(
            (tokens % pieces > 0) | is_uneven,
            "the ranks do not divide {tokens} tokens evenly",
            tokens=tokens,
        ),
        refusal(
            (context > 1) & (job.recipe.attention == "eager"),
            "eager attention has no pieces of a sequence",
        ),
        refusal(
            (context > 1) & is_hybrid,
            "a sequence is divided over GPUs that share all else, not within replicas",
        ),
    )


def _experts_narrow(job: Job, s: Strategy) -> Breach:
    """Return why a part of an expert is not multiplied together with those of the others.

    Source: torch 2.13, aten GroupedMMUtils.h: the strides of a grouped matmul's operands are multiples of 16 bytes.
    """
    tensor, linears = (
        np.asarray(s.tensor_parallel_size),
        (linear for part in job.model.parts for linear in part.linears if linear.num_experts > 1),
    )
    width = min((linear.most_splits for linear in linears), default=0)
    return refusal(
        (tensor > 1) & (np.mod(width, _GROUPED_COLUMNS * tensor) > 0),
        "{tensor} tensor-parallel ranks do not divide an expert's {width} columns into multiples of {columns}",
        tensor=s.tensor_parallel_size,
        width=width,
        columns=_GROUPED_COLUMNS,
    )


def _pipelined(job: Job, s: Strategy) -> tuple[Breach, ...]:
    stages, micro_batches = s.pipeline_parallel_size, np.asarray(s.gradient_accumulation_steps)
    classes, virtual = schedule_classes(), np.asarray(s.virtual_pipeline_size)
    fewest = by_pipeline_size(s, lambda size: min(layers_per_stage(job, size)))
    rounds = np.maximum(1, micro_batches // stages)
    named: dict[str, Any] = {
        "schedule": PipelineSchedule.name_of(s.pipeline_schedule),
        "chunks": s.virtual_pipeline_size,
        "stages": stages,
        "micro_batches": s.gradient_accumulation_steps,
    }
    return (
        refusal(
            np.logical_not(has_schedule_of(s, classes)),
            "PyTorch has no {schedule} schedule; gpipe overlaps its stages",
            **named,
        ),
        refusal(
            np.logical_not(chunks_are_defined(s)),
            "{schedule} is not defined for {chunks} chunks of layers on each GPU",
            **named,
        ),
        refusal(
            has_schedule_of(s, _of_classes(_FILLED)) & (micro_batches < stages),
            "{schedule} needs at least {stages} micro-batches, one for each stage",
            **named,
        ),
        refusal(
            has_schedule_of(s, _of_classes(_IN_ROUNDS)) & (micro_batches % rounds > 0),
            "{schedule} cannot run {micro_batches} micro-batches in equal rounds of {stages} or more",
            **named,
        ),
        refusal(
            fewest < virtual,
            "a stage of {fewest} layers has not {chunks} chunks of them",
            fewest=fewest,
            **named,
        ),
        refusal(
            (np.asarray(s.recompute) != Recompute.NONE) & splits_backward(s),
            "weight gradients that are put off need what recomputing throws away",
        ),
    )


def schedule_classes() -> Mapping[str, str]:
    """Return the classes of torch.distributed.pipelining by the planner's name of their schedule."""
    return records.framework("torch").capabilities.pipeline_schedules


def _of_classes(names: tuple[str, ...]) -> list[str]:
    return [schedule for schedule, name in schedule_classes().items() if name in names]
