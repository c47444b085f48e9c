"""torchtitan: a line per logged step with tokens per second of a GPU, and the mesh before the first."""

import math
import re
from collections.abc import Sequence

from planner.calibrate.logs.line_formats import line_format
from planner.calibrate.logs.steps import StepLog, count

_LISTED = re.compile(
    r"Building \d-D device mesh with \[(?P<names>['a-z_, ]{1,80})\], \[(?P<sizes>[\d, ]{1,80})\]"
)
"""As releases before 2026 print the mesh: what is not named is of size 1."""
_OF_A_PASS = ("strategy.micro_batch_size", "strategy.gradient_accumulation_steps")
"""What a pipeline's log calls so is of all micro-batches that it takes at once."""
_RECOMPUTED = re.compile(r"Applied (full|selective) activation checkpointing")
_IN_8_BIT = re.compile(r"\b(?:Float8|MXFP8)\b.{0,80}\btraining active")
_COMPILED = "with torch.compile"
_KEPT = re.compile(r"reshard_after_forward\W{1,4}(?:never|False)\b")
_TOKENS = re.compile(r"(?<!\d)(\d{1,15}) tokens per train step")
_CAPACITY = re.compile(r"(?:CUDA|HIP) capacity: (?P<name>.{1,80}?) with [\d.]{1,12}GiB memory")


def _take_the_rest(lines: Sequence[str], log: StepLog) -> None:
    for line in lines:
        if tokens := _TOKENS.search(line):
            log.tokens_per_step = count(tokens[1])
        if capacity := _CAPACITY.search(line):
            log.device = capacity["name"]
            log.understood.add(line)
        if TORCHTITAN.mark not in line:
            _take_applied(line, log)
    sizes = [log.said[path] for path in _SIZES if path in log.said]
    if len(sizes) == len(_SIZES):
        log.world_size = math.prod(sizes)
        _suppose_stage(lines, log)
    if log.said.get(_PIPELINE, 1) > 1:
        for path in _OF_A_PASS:
            log.said.pop(path, None)


def _take_applied(line: str, log: StepLog) -> None:
    """Take what was done to the model, and a mesh as a list."""
    if mesh := _LISTED.search(line):
        _take_listed(mesh, line, log)
    if recomputed := _RECOMPUTED.search(line):
        log.say("strategy.recompute", recomputed[1], line)
    if _IN_8_BIT.search(line):
        log.say("recipe.precision", "fp8", line)
    if _COMPILED in line:
        log.say("recipe.compile", value=True, line=line)


def _take_listed(mesh: re.Match[str], line: str, log: StepLog) -> None:
    names = [name.strip("' ") for name in mesh["names"].split(",")]
    sizes = [count(size.strip()) for size in mesh["sizes"].split(",")]
    if len(names) != len(sizes) or not set(names) <= _MESH.keys():
        return
    found = dict(zip(names, sizes, strict=True))
    for name, path in _MESH.items():
        log.say(path, found.get(name, 1), line)


def _suppose_stage(lines: Sequence[str], log: StepLog) -> None:
    """Suppose FSDP where the mesh shards; by itself it keeps parameters gathered in a pipeline, where that takes fewer gathers.

    Source: pytorch/torchtitan, distributed/fsdp.py `get_fsdp_reshard_after_forward_policy`, "default".
    """
    if log.said[_SHARD] == 1:
        return
    is_kept = log.said[_PIPELINE] > 1 or any(map(_KEPT.search, lines))
    log.supposed["strategy.zero_stage"] = 2 if is_kept else 3


TORCHTITAN = line_format("torchtitan", also=_take_the_rest)
"""Its memory is what the allocator reserved."""
_MESH = {name: path for name, (path, _) in TORCHTITAN.facts[0].fields.items()}
_SIZES = tuple(path for name, path in _MESH.items() if name != "ep")
_SHARD, _PIPELINE = _MESH["dp_shard"], _MESH["pp"]
