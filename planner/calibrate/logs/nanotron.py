"""nanotron: a line per step in figures of three digits, the batch before the first."""

import re
from collections.abc import Sequence

from planner.calibrate.logs.per_step import PerStep
from planner.calibrate.logs.steps import Facts, LineFormat, count, number, numbered

_START = Facts(
    pattern=re.compile(
        r"\b(?P<name>mbs|grad_accum|cp|sequence_length|global_batch_size): (?P<value>\d+)\b"
    ),
    fields={
        "mbs": ("strategy.micro_batch_size", count),
        "grad_accum": ("strategy.gradient_accumulation_steps", count),
        "cp": ("strategy.context_parallel_size", count),
        "sequence_length": ("recipe.sequence_length", count),
        "global_batch_size": ("recipe.global_batch_size", count),
    },
)
_PARALLELISM = Facts(
    pattern=re.compile(r"(?:\(|^|\s)(?P<name>dp|pp|tp|expert_parallel_size)=(?P<value>\d+),?"),
    fields={
        "dp": ("strategy.data_parallel_size", count),
        "pp": ("strategy.pipeline_parallel_size", count),
        "tp": ("strategy.tensor_parallel_size", count),
        "expert_parallel_size": ("strategy.expert_parallel_size", count),
    },
)
_BATCH = numbered("global_batch_size: ", r" \|")


def _per_step(lines: Sequence[str]) -> tuple[PerStep, ...]:
    """Return the last step's batch, in figures of three digits; releases count sequences or tokens."""
    batch = _BATCH.search(lines[-1]) if lines else None
    amount = number(batch[1]) if batch else None
    return () if amount is None else (PerStep(amount=amount, of="either"),)


NANOTRON = LineFormat(
    name="nanotron",
    mark="time_per_iteration_ms: ",
    step=re.compile(r"iteration: (\d{1,12}) / "),
    value=numbered("time_per_iteration_ms: "),
    scale=1e-3,
    said={"recipe.framework": "nanotron"},
    facts=(_START, _PARALLELISM),
    peak=numbered("Peak allocated:? ", "MiB"),
    reserved=numbered("Peak reserved:? ", "MiB"),
    memory_unit=2.0**20,
    per_step=_per_step,
)
"""Source: huggingface/nanotron, src/nanotron/trainer.py `train_step_logs`, logging/base.py `human_format`."""
