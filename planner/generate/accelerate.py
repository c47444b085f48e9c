"""Hugging Face Accelerate, started by `accelerate launch`."""

from typing import Any

from planner.generate.bundle import Bundle
from planner.generate.target import Target

_PRECISION = {"fp16-mixed": "fp16", "bf16-mixed": "bf16"}


def _refusal(bundle: Bundle) -> str | None:
    if bundle.splits_the_model:
        return "its script divides the data, not the model, over GPUs"
    if bundle.shards_parameters and bundle.data_parallel_replicate_size > 1:
        return "its script shards over all GPUs, without replicas"
    if bundle.recompute == "selective":
        return "Accelerate recomputes whole blocks or nothing"
    if bundle.offload != "none":
        return "its script keeps everything on the GPUs"
    if bundle.synchronize_every > 1:
        return "its script averages gradients every step"
    return None


def _context(bundle: Bundle) -> dict[str, Any]:
    return {"accelerate_precision": _PRECISION.get(bundle.precision, "no")}


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
