"""DeepSpeed: samples per second of single steps, every `steps_per_print`, and its configuration."""

import re

from planner.calibrate.logs.steps import Facts, LineFormat, count, numbered

_STAGES = ("disabled", "optimizer_states", "gradients", "weights")
"""As newer Pythons print them; older ones print their numbers."""
_NUMBERS = {str(stage): stage for stage in range(len(_STAGES))}


def _stage(text: str) -> int | None:
    name = text.removeprefix("ZeroStageEnum.")
    return _STAGES.index(name) if name in _STAGES else _NUMBERS.get(text)


_CONFIG = Facts(
    pattern=re.compile(r"(?:^|\s)(?P<name>[a-z_]{1,60}) \.* (?P<value>\S+)$"),
    fields={
        "world_size": ("data_ranks", count),
        "train_batch_size": ("recipe.global_batch_size", count),
        "train_micro_batch_size_per_gpu": ("strategy.micro_batch_size", count),
        "gradient_accumulation_steps": ("strategy.gradient_accumulation_steps", count),
        "zero_optimization_stage": ("strategy.zero_stage", _stage),
    },
)

DEEPSPEED = LineFormat(
    name="DeepSpeed",
    mark="CurrSamplesPerSec=",
    step=re.compile(r"global_step=(\d{1,12})\b"),
    value=numbered("CurrSamplesPerSec="),
    unit="samples/s",
    said={"recipe.framework": "deepspeed"},
    facts=(_CONFIG,),
    peak=numbered("MaxMemAllocated=", "GB"),
)
"""Its GB are 2^30 bytes. Source: deepspeedai/DeepSpeed, deepspeed/utils/timer.py `ThroughputTimer`, runtime/config.py."""
