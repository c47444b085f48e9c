"""PyTorch alone, started by torchrun: every strategy that PyTorch has."""

from planner.generate.bundle import Bundle
from planner.generate.families import heads, undividable
from planner.generate.target import Target
from planner.generate.torchrun_script import schedule, schedule_classes, script_context

_FILLED = ("Schedule1F1B", "ScheduleZBVZeroBubble")
"""Classes that ask for a micro-batch for each stage."""
_IN_ROUNDS = ("ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble")
"""Classes that divide micro-batches into equal rounds."""


def _refusal(bundle: Bundle) -> str | None:
    """Return the first reason that applies."""
    reasons = _data_parallel(bundle)
    if bundle.splits_the_model:
        reasons |= _divided(bundle)
    if bundle.pipeline_parallel_size > 1:
        reasons |= _pipelined(bundle)
    return next((reason for reason, applies in reasons.items() if applies), None)


def _data_parallel(bundle: Bundle) -> dict[str, bool]:
    stage, offload = bundle.zero_stage, bundle.offload
    shards, replicas = bundle.data_parallel_shard_size, bundle.data_parallel_replicate_size
    is_local = bundle.synchronize_every > 1
    return {
        "FSDP moves the parameters to host memory together with the optimizer's states": (
            offload == "optimizer"
        ),
        "only FSDP (ZeRO-2 and 3) has parameters wait in host memory": (
            offload != "none" and not bundle.shards_parameters
        ),
        "parameters are averaged between whole replicas, without ZeRO": is_local
        and (stage > 0 or bundle.splits_the_model),
        "ZeRO-1 divides the optimizer's states over all data-parallel ranks": (
            stage == 1 and replicas > 1 and shards > 1 and not bundle.splits_the_model
        ),
        "shards need a ZeRO stage": stage == 0 and shards > 1,
        "selective recompute keeps what PyTorch's own attention returns": (
            bundle.recompute == "selective" and bundle.attention == "flash"
        ),
    }


def _divided(bundle: Bundle) -> dict[str, bool]:
    tensor, context, tokens = (
        bundle.tensor_parallel_size,
        bundle.context_parallel_size,
        bundle.sequence_length,
    )
    queries, keys = heads(bundle)
    pieces = 2 * context if context > 1 else 1
    obstacle = undividable(bundle)
    is_hybrid = bundle.data_parallel_replicate_size > 1 and bundle.data_parallel_shard_size > 1
    return {
        "it does not divide experts over GPUs": bundle.expert_parallel_size > 1,
        "the parts of a model would each choose a loss scale of their own in fp16": (
            bundle.precision == "fp16-mixed"
        ),
        str(obstacle): obstacle is not None,
        f"{tensor} tensor-parallel ranks do not divide {queries} heads, {keys} of keys": (
            queries % tensor > 0 or keys % tensor > 0
        ),
        f"the ranks do not divide {tokens} tokens evenly": (
            tokens % pieces > 0 or (bundle.sequence_parallel and tokens % (context * tensor) > 0)
        ),
        "eager attention has no pieces of a sequence": context > 1 and bundle.attention == "eager",
        "a sequence is divided over GPUs that share all else, not within replicas": (
            context > 1 and is_hybrid
        ),
    }


def _pipelined(bundle: Bundle) -> dict[str, bool]:
    """Say what PyTorch's schedules would refuse when the job starts."""
    stages, micro_batches = bundle.pipeline_parallel_size, bundle.gradient_accumulation_steps
    name, virtual = bundle.pipeline_schedule, bundle.virtual_pipeline_size
    fewest, theirs = min(bundle.layers_per_stage), schedule_classes().get(name, "")
    rounds = max(1, micro_batches // stages)
    return {
        f"PyTorch has no {name} schedule; gpipe overlaps its stages": not theirs,
        f"{name} is not defined for {virtual} chunks of layers on each GPU": (
            virtual not in schedule(bundle).chunks
        ),
        f"{name} needs at least {stages} micro-batches, one for each stage": (
            theirs in _FILLED and micro_batches < stages
        ),
        f"{name} cannot run {micro_batches} micro-batches in equal rounds of {stages} or more": (
            theirs in _IN_ROUNDS and micro_batches % rounds > 0
        ),
        f"a stage of {fewest} layers has not {virtual} chunks of them": fewest < virtual,
        "weight gradients that are put off need what recomputing throws away": (
            bundle.recompute != "none" and schedule(bundle).splits_backward
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
