"""Hugging Face Accelerate, started by `accelerate launch`; with DeepSpeed where the plan is for that."""

from collections.abc import Mapping
from typing import Any

from planner.generate import deepspeed
from planner.generate.run_spec import RunSpec
from planner.generate.target import SCRIPT, Target, more_modules

_PRECISION = {"fp16-mixed": "fp16", "bf16-mixed": "bf16"}


def _is_deepspeed(spec: RunSpec) -> bool:
    return spec.framework == "deepspeed"


def _context(spec: RunSpec) -> dict[str, Any]:
    is_deepspeed = _is_deepspeed(spec)
    context: dict[str, Any] = {
        "accelerate_precision": _precision(spec),
        "has_context": spec.context_parallel_size > 1,
        "is_deepspeed": is_deepspeed,
        "is_hybrid": spec.shards_gradients and spec.data_parallel_replicate_size > 1,
        "is_zero_1": spec.zero_stage == 1 and not is_deepspeed,
        "uses_ddp": not spec.shards_gradients and not is_deepspeed,
    }
    if not is_deepspeed:
        return context
    # ZeRO has an fp32 copy of every weight.
    dtype = spec.weight_dtype if spec.adapters else "float32"
    own = {"is_sharded": False, "weight_dtype": dtype, "settings": deepspeed.settings(spec)}
    return context | own


def _precision(spec: RunSpec) -> str:
    """Return Accelerate's mixed precision.

    With it, Accelerate makes fp32 of every trained weight that it shards; FSDP's own policy alone
    leaves 16-bit weights as they are.
    """
    is_left = spec.shards_gradients and spec.weight_dtype == "bfloat16"
    return "no" if is_left else _PRECISION.get(spec.precision, "no")


def _more_templates(spec: RunSpec) -> Mapping[str, str]:
    config = {"ds_config.json": "deepspeed/ds_config.json"} if _is_deepspeed(spec) else {}
    return config | more_modules(spec)


TARGET = Target(
    name="accelerate",
    summary="what Accelerate does is in `accelerate.yaml`.",
    templates={
        "train.py": "accelerate/train.py",
        "training.py": "accelerate/training.py",
        **SCRIPT,
        "launch.sh": "accelerate/launch.sh",
        "accelerate.yaml": "accelerate/accelerate.yaml",
        "config.json": "common/config.json",
        "requirements.txt": "accelerate/requirements.txt",
    },
    more_templates=_more_templates,
    context=_context,
)
