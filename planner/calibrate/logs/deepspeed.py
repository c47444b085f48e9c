"""DeepSpeed: samples per second of single steps, every `steps_per_print`, and its configuration."""

import re
from collections.abc import Sequence

from planner.calibrate.logs.steps import Facts, LineFormat, StepLog, count, numbered

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

_LINES = LineFormat(
    name="DeepSpeed",
    mark="CurrSamplesPerSec=",
    step=re.compile(r"global_step=(\d{1,12})\b"),
    value=numbered("CurrSamplesPerSec="),
    unit="samples/s",
    said={"recipe.framework": "deepspeed"},
    facts=(_CONFIG,),
    peak=numbered("MaxMemAllocated=", "GB"),
)
_PRECISION = re.compile(r"\b(?P<name>bfloat16|fp16)_enabled \.* (?P<value>True|False)$")
_PRECISIONS = {"bfloat16": "bf16-mixed", "fp16": "fp16-mixed"}


class DeepSpeed:
    """Reads what the engine prints; its GB are 2^30 bytes.

    Source: deepspeedai/DeepSpeed, deepspeed/utils/timer.py `ThroughputTimer`, runtime/config.py.
    """

    name = _LINES.name

    def recognises(self, lines: Sequence[str]) -> bool:
        """Return whether some line has the speed of a step."""
        return _LINES.recognises(lines)

    def read(self, lines: Sequence[str]) -> StepLog:
        """Return what the lines say."""
        log = _LINES.read(lines)
        for line in lines:
            if said := _PRECISION.search(line):
                log.understood.add(line)
                if said["value"] == "True":
                    log.said["recipe.precision"] = _PRECISIONS[said["name"]]
        return log


DEEPSPEED = DeepSpeed()
