"""The log of the scripts that the planner writes: what they print, or the lines of --log."""

import json
import re
import statistics
from collections.abc import Sequence
from typing import Any

from planner.calibrate.logs.line_formats import line_format
from planner.calibrate.logs.per_step import PerStep
from planner.calibrate.logs.steps import LARGEST_RATE, StepLog, number, numbered

_START = re.compile(
    r"starting from .*, on (?P<ranks>\d+) x (?P<device>.+?)(?: \(the plan is for .*)?$"
)
_LINES = line_format("script")
_PLANNED = numbered(r"tokens/s \(plan ", r"\)")
_RATE, _TOKENS = "tokens_per_second", "tokens_per_step"
_GIB = 2.0**30


class Script:
    """Reads what train.py of an emitted bundle prints, or appends to the file of --log."""

    name = _LINES.name

    def recognises(self, lines: Sequence[str]) -> bool:
        """Return whether some line is one of a step."""
        return _LINES.recognises(lines) or any(_is_record(line) for line in lines)

    def read(self, lines: Sequence[str]) -> StepLog:
        """Return what the lines say."""
        has_records = any(map(_is_record, lines))
        log = _LINES.read([line for line in lines if not has_records or not _is_step(line)])
        tokens: list[float] = []
        for line in lines:
            if planned := _PLANNED.search(line):
                log.planned_rate = number(planned[1])
            if _is_step(line):
                log.understood.add(line)  # where both are there, the records have all digits
            elif _is_record(line):
                tokens += _read_record(line, log)
            elif start := _START.search(line):
                log.say("world_size", int(start["ranks"][:9]), line)
                log.device = "cpu" if start["device"] == "CPU" else start["device"]
        if tokens:
            log.per_step = (PerStep(amount=statistics.fmean(tokens), of="tokens"),)
        return log


def _is_step(line: str) -> bool:
    return _LINES.mark in line


def _is_record(line: str) -> bool:
    return line.startswith("{") and f'"{_RATE}"' in line


def _read_record(line: str, log: StepLog) -> list[float]:
    """Take one line of --log: a JSON object with step, tokens_per_second, tokens_per_step, world_size, peak_gib.

    Returns its tokens, if it says any.
    """
    record = _object(line)
    step = number(str(record.get("step")), -1, 1e12)
    if step is None:
        log.damaged.append(line)
        return []
    if "world_size" in record:
        ranks = number(str(record["world_size"]), 0, 2.0**30)
        log.say("world_size", None if ranks is None else int(ranks), line)
    if "device" in record:
        log.device = str(record["device"])
    log.step(int(step), str(record.get(_RATE)), line)
    for name, key in (("peak", "peak_gib"), ("reserved", "reserved_gib")):
        if key in record:
            amount = number(str(record[key]))
            log.memory(line, **{name: -1.0 if amount is None else amount * _GIB})
    tokens = number(str(record.get(_TOKENS)), 0, LARGEST_RATE)
    return [tokens] if tokens else []


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


SCRIPT = Script()
