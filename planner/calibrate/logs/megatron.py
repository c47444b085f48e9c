"""Megatron-LM: the table of arguments, a line per logging interval, memory of each rank."""

import re
from collections.abc import Sequence
from typing import Any

from planner.calibrate.logs.line_formats import line_format
from planner.calibrate.logs.steps import StepLog, count, flag
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


_UNSET = ("None", "False")
_SCALES = ("blockwise", "mxfp8")
"""Recipes of fp8 that are called so here too; delayed and current scales of a tensor are as the framework does."""
_BY_LAYER = ("block", "uniform")


def _take_arguments(lines: Sequence[str], log: StepLog) -> None:
    """Take what several arguments say together; the table has every one."""
    table = {
        said["name"]: (said["value"].strip(), line)
        for line in lines
        if " .." in line and (said := _ARGUMENT.search(line))
    }
    _say_precision(table, log)
    _say_layers(table, log)


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


MEGATRON = line_format(
    "megatron",
    {
        "virtual_pipeline_model_parallel_size": _positive,
        "sequence_parallel": flag,
        "use_distributed_optimizer": _zero,
        "recompute_granularity": _recompute,
        "recompute_modules": _modules,
    },
    also=_take_arguments,
)
"""What pretrain_gpt.py prints: its MB are 2^20 bytes."""
_ARGUMENT = MEGATRON.facts[0].pattern
