"""Hugging Face Accelerate, started by `accelerate launch`."""

from typing import Any

from planner.generate.bundle import Bundle
from planner.generate.target import Target

_PRECISION = {"fp16-mixed": "fp16", "bf16-mixed": "bf16"}


def _refusal(bundle: Bundle) -> str | None:
    shards, replicas = bundle.data_parallel_shard_size, bundle.data_parallel_replicate_size
    is_local = bundle.synchronize_every > 1
    reasons = {
        "its script divides the data, not the model, over GPUs": bundle.splits_the_model,
        "Accelerate recomputes whole blocks or nothing": bundle.recompute == "selective",
        "FSDP moves the parameters to host memory together with the optimizer's states": (
            bundle.offload == "optimizer"
        ),
        "only FSDP (ZeRO-2 and 3) has parameters wait in host memory": (
            bundle.offload != "none" and not bundle.shards_parameters
        ),
        "ZeRO-1 divides the optimizer's states over all data-parallel ranks": (
            bundle.zero_stage == 1 and replicas > 1 and shards > 1
        ),
        "its LocalSGD averages parameters between whole replicas, without ZeRO": (
            is_local and bundle.zero_stage > 0
        ),
        "LocalSGD averages in the precision of the parameters, not with a loss scale": (
            is_local and bundle.precision == "fp16-mixed"
        ),
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _context(bundle: Bundle) -> dict[str, Any]:
    return {
        "accelerate_precision": _PRECISION.get(bundle.precision, "no"),
        "is_hybrid": bundle.shards_parameters and bundle.data_parallel_replicate_size > 1,
    }


TARGET = Target(
    name="accelerate",
    summary="the same training; the parallelism is in `accelerate.yaml`.",
    templates={
        "train.py": "accelerate/train.py",
        "launch.sh": "accelerate/launch.sh",
        "accelerate.yaml": "accelerate/accelerate.yaml",
        "config.json": "common/config.json",
        "requirements.txt": "accelerate/requirements.txt",
    },
    refusal=_refusal,
    context=_context,
)
