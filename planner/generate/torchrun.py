"""PyTorch alone, started by torchrun: every strategy that PyTorch has."""

from planner.generate.adapters import adapter_obstacles
from planner.generate.families import heads, undividable
from planner.generate.run_spec import RunSpec
from planner.generate.target import Target
from planner.generate.torchrun_script import schedule, schedule_classes, script_context

_FILLED = ("Schedule1F1B", "ScheduleZBVZeroBubble")
"""Classes that ask for a micro-batch for each stage."""
_IN_ROUNDS = ("ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble")
"""Classes that divide micro-batches into equal rounds."""


def _refusal(spec: RunSpec) -> str | None:
    """Return the first reason that applies."""
    reasons = adapter_obstacles(spec) | _frozen(spec) | _data_parallel(spec)
    if spec.is_model_parallel:
        reasons |= _divided(spec)
    if spec.pipeline_parallel_size > 1:
        reasons |= _pipelined(spec)
    return next((reason for reason, applies in reasons.items() if applies), None)


def _frozen(spec: RunSpec) -> dict[str, bool]:
    """Say what of a plan with adapters the script has no part for."""
    adapters = spec.adapters
    return {
        "quantised weights are trained beside by the scripts of accelerate and trainer": (
            adapters is not None and adapters.is_quantised
        ),
        "selective recompute is of models without adapters": (
            adapters is not None and spec.recompute == "selective"
        ),
    }


def _data_parallel(spec: RunSpec) -> dict[str, bool]:
    stage, offload = spec.zero_stage, spec.offload
    shards, replicas = spec.data_parallel_shard_size, spec.data_parallel_replicate_size
    is_local = spec.synchronize_every > 1
    return {
        "FSDP moves the parameters to host memory together with the optimizer's states": (
            offload == "optimizer"
        ),
        "only FSDP (ZeRO-2 and 3) has parameters wait in host memory": (
            offload != "none" and not spec.shards_parameters
        ),
        "parameters are averaged between whole replicas, without ZeRO": is_local
        and (stage > 0 or spec.is_model_parallel),
        "ZeRO-1 divides the optimizer's states over all data-parallel ranks": (
            stage == 1 and replicas > 1 and shards > 1 and not spec.is_model_parallel
        ),
        "a loss scale in fp16 needs weights in fp32": (
            spec.precision == "fp16-mixed" and bool(spec.config_dtype)
        ),
        "shards need a ZeRO stage": stage == 0 and shards > 1,
        "selective recompute keeps what PyTorch's own attention returns": (
            spec.recompute == "selective" and spec.attention == "flash"
        ),
    }


def _divided(spec: RunSpec) -> dict[str, bool]:
    """Say what the parts of a model would not compute as planned."""
    tensor, context, tokens = (
        spec.tensor_parallel_size,
        spec.context_parallel_size,
        spec.sequence_length,
    )
    queries, keys = heads(spec)
    pieces = 2 * context if context > 1 else 1
    obstacle = undividable(spec)
    is_hybrid = spec.data_parallel_replicate_size > 1 and spec.data_parallel_shard_size > 1
    return {
        "it does not divide experts over GPUs": spec.expert_parallel_size > 1,
        "the parts of a model start in fp32, or in bf16 without mixed precision": bool(
            spec.config_dtype
        ),
        "the parts of a model would each choose a loss scale of their own in fp16": (
            spec.precision == "fp16-mixed"
        ),
        str(obstacle): obstacle is not None,
        f"{tensor} tensor-parallel ranks do not divide {queries} heads, {keys} of keys": (
            queries % tensor > 0 or keys % tensor > 0
        ),
        f"the ranks do not divide {tokens} tokens evenly": (
            tokens % pieces > 0 or (spec.sequence_parallel and tokens % (context * tensor) > 0)
        ),
        "eager attention has no pieces of a sequence": context > 1 and spec.attention == "eager",
        "a sequence is divided over GPUs that share all else, not within replicas": (
            context > 1 and is_hybrid
        ),
    }


def _pipelined(spec: RunSpec) -> dict[str, bool]:
    """Say what PyTorch's schedules would refuse when the job starts."""
    stages, micro_batches = spec.pipeline_parallel_size, spec.gradient_accumulation_steps
    name, virtual = spec.pipeline_schedule, spec.virtual_pipeline_size
    fewest, theirs = min(spec.layers_per_stage), schedule_classes().get(name, "")
    rounds = max(1, micro_batches // stages)
    return {
        f"PyTorch has no {name} schedule; gpipe overlaps its stages": not theirs,
        f"{name} is not defined for {virtual} chunks of layers on each GPU": (
            virtual not in schedule(spec).chunks
        ),
        f"{name} needs at least {stages} micro-batches, one for each stage": (
            theirs in _FILLED and micro_batches < stages
        ),
        f"{name} cannot run {micro_batches} micro-batches in equal rounds of {stages} or more": (
            theirs in _IN_ROUNDS and micro_batches % rounds > 0
        ),
        f"a stage of {fewest} layers has not {virtual} chunks of them": fewest < virtual,
        "weight gradients that are put off need what recomputing throws away": (
            spec.recompute != "none" and schedule(spec).splits_backward
        ),
    }


TARGET = Target(
    name="torchrun",
    summary="PyTorch alone, everything in one file.",
    templates={
        "train.py": "torchrun/train.py",
        "launch.sh": "torchrun/launch.sh",
        "config.json": "common/config.json",
        "requirements.txt": "torchrun/requirements.txt",
    },
    refusal=_refusal,
    context=script_context,
)
