"""NeMo: the train_step_timing of its bar or its lines, and the configuration that it prints."""

import re
from collections.abc import Sequence

from planner.calibrate.logs.per_step import PerStep
from planner.calibrate.logs.steps import Facts, LineFormat, count, number, numbered

_CONFIG = Facts(
    pattern=re.compile(r"^\s*(?P<name>[a-z_]+): (?P<value>\d+)$"),
    fields={
        "tensor_model_parallel_size": ("strategy.tensor_parallel_size", count),
        "pipeline_model_parallel_size": ("strategy.pipeline_parallel_size", count),
        "context_parallel_size": ("strategy.context_parallel_size", count),
        "micro_batch_size": ("strategy.micro_batch_size", count),
        "global_batch_size": ("recipe.global_batch_size", count),
        "encoder_seq_length": ("recipe.sequence_length", count),
        "num_nodes": ("cluster.nodes", count),
        "devices": ("cluster.gpus_per_node", count),
    },
)

_OF_STEPS = Facts(
    pattern=re.compile(r"(?P<name>global_batch_size): (?P<value>\d{1,12}) \|"),
    fields={"global_batch_size": ("recipe.global_batch_size", count)},
    is_of_steps=True,
)
_STEP = numbered("global_step(?:=|: )")
_CONSUMED = numbered("consumed_samples(?:=|: )")
_DIGITS = 0.005
"""By which a bar's three digits may be off."""


def _per_step(lines: Sequence[str]) -> tuple[PerStep, ...]:
    """Return by how many samples those consumed rise per step, over the second half of the steps."""
    half = lines[len(lines) // 2 - 1 :] if len(lines) > 1 else ()
    points = [
        (step, consumed)
        for line in half
        if (at := _STEP.search(line)) and (until := _CONSUMED.search(line))
        if (step := number(at[1], -1)) is not None and (consumed := number(until[1])) is not None
    ]
    if not points or points[0][0] >= points[-1][0] or points[0][1] >= points[-1][1]:
        return ()
    (first, before), (last, after) = points[0], points[-1]
    apart = 0.01 + _DIGITS * (before + after) / (after - before)
    return (PerStep(amount=(after - before) / (last - first), of="sequences", apart=apart),)


NEMO = LineFormat(
    name="NeMo",
    mark="train_step_timing in s",
    step=_STEP,
    value=numbered("train_step_timing in s(?:=|: )"),
    said={"recipe.framework": "megatron"},
    facts=(_CONFIG, _OF_STEPS),
    peak=numbered("max_memory_allocated: "),
    reserved=numbered("max_memory_reserved: "),
    memory_unit=1.0,
    per_step=_per_step,
)
"""NeMo runs on Megatron Core; its first version has a bar, its second a line per step.

Source: NVIDIA/NeMo, nemo/utils/exp_manager.py `TimingCallback`, nemo/lightning/pytorch/callbacks/progress_printer.py.
"""
