"""Megatron-LM: the table of arguments, a line per logging interval, memory of each rank."""

import re
from collections.abc import Sequence
from typing import Any

from planner.calibrate.logs.steps import Facts, LineFormat, StepLog, count, flag, numbered
from planner.domain.recompute_modules import MODULES

_QUOTED = re.compile(r"'([a-z_]{1,40})'")


def _recompute(text: str) -> str | None:
    return {"None": "none", "full": "full", "selective": "selective"}.get(text.strip())


def _modules(text: str) -> list[str] | None:
    """Return the modules of a list as Python prints it; None where one is not modelled, or it is no list."""
    if text.strip() == "None":
        return []
    names = _QUOTED.findall(text) if text.strip().startswith("[") else []
    return names if names and set(names) <= set(MODULES) else None


def _zero(text: str) -> int | None:
    is_sharded = flag(text)
    return None if is_sharded is None else int(is_sharded)


def _positive(text: str) -> Any:
    return 1 if text.strip() == "None" else count(text.strip())


ARGUMENTS = Facts(
    pattern=re.compile(r"(?:^|\s)(?P<name>[a-z_0-9]+) \.{2,} (?P<value>[^\s].*)$"),
    fields={
        "world_size": ("world_size", count),
        "tensor_model_parallel_size": ("strategy.tensor_parallel_size", count),
        "pipeline_model_parallel_size": ("strategy.pipeline_parallel_size", count),
        "virtual_pipeline_model_parallel_size": ("strategy.virtual_pipeline_size", _positive),
        "context_parallel_size": ("strategy.context_parallel_size", count),
        "expert_model_parallel_size": ("strategy.expert_parallel_size", count),
        "sequence_parallel": ("strategy.sequence_parallel", flag),
        "use_distributed_optimizer": ("strategy.zero_stage", _zero),
        "recompute_granularity": ("strategy.recompute", _recompute),
        "recompute_modules": ("strategy.recompute_modules", _modules),
        "micro_batch_size": ("strategy.micro_batch_size", count),
        "global_batch_size": ("recipe.global_batch_size", count),
        "seq_length": ("recipe.sequence_length", count),
        "num_layers": ("model.num_layers", count),
        "hidden_size": ("model.hidden_size", count),
        "ffn_hidden_size": ("model.ffn_hidden_size", count),
    },
)

_OF_STEPS = Facts(
    pattern=re.compile(r"(?P<name>global batch size):\s{0,20}(?P<value>\d{1,12}) \|"),
    fields={"global batch size": ("recipe.global_batch_size", count)},
    is_of_steps=True,
)

_LINES = LineFormat(
    name="Megatron-LM",
    mark="elapsed time per iteration (ms):",
    step=re.compile(r"\biteration\s{1,20}(\d{1,12})\s{0,20}/"),
    value=numbered(r"elapsed time per iteration \(ms\):\s{0,20}"),
    scale=1e-3,
    said={"recipe.framework": "megatron"},
    facts=(ARGUMENTS, _OF_STEPS),
    peak=numbered(r"max allocated:\s{0,20}"),
    reserved=numbered(r"max reserved:\s{0,20}"),
    memory_unit=2.0**20,
)
_UNSET = ("None", "False")
_SCALES = ("blockwise", "mxfp8")
"""Recipes of fp8 that are called so here too; delayed and current scales of a tensor are as the framework does."""
_BY_LAYER = ("block", "uniform")


class Megatron:
    """Reads what pretrain_gpt.py prints: its MB are 2^20 bytes, its table has every argument.

    Source: NVIDIA/Megatron-LM, megatron/training/training.py, utils.py `report_memory`, arguments.py.
    """

    name = _LINES.name

    def recognises(self, lines: Sequence[str]) -> bool:
        """Return whether some line is an iteration."""
        return _LINES.recognises(lines)

    def read(self, lines: Sequence[str]) -> StepLog:
        """Return what the lines say."""
        log = _LINES.read(lines)
        table = {
            said["name"]: (said["value"].strip(), line)
            for line in lines
            if " .." in line and (said := ARGUMENTS.pattern.search(line))
        }
        _say_precision(table, log)
        _say_layers(table, log)
        return log


def _say_precision(table: dict[str, tuple[str, str]], log: StepLog) -> None:
    """Take the precision, which several arguments make: fp8 goes with one of 16 bit."""
    flags = {name: table[name] for name in ("fp8", "fp16", "bf16") if name in table}
    chosen = {name: line for name, (value, line) in flags.items() if value not in _UNSET}
    log.understood |= {line for _, line in flags.values()}
    if "fp8" in chosen:
        log.say("recipe.precision", "fp8", chosen["fp8"])
        scales, line = table.get("fp8_recipe", ("", ""))
        if scales in _SCALES:
            log.say("recipe.fp8_recipe", scales, line)
    elif chosen:
        name, line = next(iter(chosen.items()))
        log.say("recipe.precision", f"{name}-mixed", line)


def _say_layers(table: dict[str, tuple[str, str]], log: StepLog) -> None:
    """Take how many layers of a stage recompute: by block the first few, uniformly all, in chunks of so many."""
    method, line = table.get("recompute_method", ("", ""))
    if method not in _BY_LAYER or log.said.get("strategy.recompute") != "full":
        return
    log.understood.add(line)
    value, line = table.get("recompute_num_layers", ("", ""))
    if method == "block":
        log.say("strategy.recompute_layers", count(value), line)
    else:
        log.understood.add(line)
        log.none_of.append("strategy.recompute_layers")


MEGATRON = Megatron()
