"""MLPerf training logs: `:::MLLOG` and an event as JSON on every line."""

import json
from collections.abc import Sequence
from typing import Any

from planner.calibrate.logs.steps import StepLog, count, number

_MARK = ":::MLLOG "
_SAID = {
    "global_batch_size": "recipe.global_batch_size",
    "gradient_accumulation_steps": "strategy.gradient_accumulation_steps",
    "max_sequence_length": "recipe.sequence_length",
}
_STEP_SECONDS = ("train_step_time", "train_step_timing")


class MLPerf:
    """Reads tracked_stats (samples per second, or seconds of a step), else the blocks between evaluations.

        samples per second of a block = samples between block_start and block_stop / their time

    Source: mlcommons/logging, mlperf_logging/mllog/constants.py.
    """

    name = "MLPerf"

    def recognises(self, lines: Sequence[str]) -> bool:
        """Return whether some line is an event."""
        return any(_MARK in line for line in lines)

    def read(self, lines: Sequence[str]) -> StepLog:
        """Return what the events say."""
        log = StepLog(kind=self.name, unit="samples/s")
        events = [_event(line, log) for line in lines if _MARK in line]
        found = [event for event in events if event]
        for event in found:
            path = _SAID.get(str(event.get("key")))
            if path is not None:
                log.say(path, count(str(event.get("value"))), _line(event))
        if not _tracked(found, log):
            _blocks(found, log)
        return log


def _event(line: str, log: StepLog) -> dict[str, Any]:
    try:
        value = json.loads(line.partition(_MARK)[2])
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        log.damaged.append(line)
        return {}
    log.understood.add(line)
    return value


def _line(event: dict[str, Any]) -> str:
    return json.dumps(event)[:200]


def _tracked(events: Sequence[dict[str, Any]], log: StepLog) -> bool:
    """Take the speed that a submission itself tracks; return whether there was one."""
    tracked = [e for e in events if e.get("key") == "tracked_stats"]
    for index, event in enumerate(tracked):
        stats = event.get("value")
        if not isinstance(stats, dict):
            continue
        timed = next((stats[name] for name in _STEP_SECONDS if name in stats), None)
        if timed is not None and (log.unit == "seconds" or not log.values):
            log.unit = "seconds"
            log.step(index, str(timed), _line(event))
        elif "throughput" in stats and log.unit == "samples/s":
            log.step(index, str(stats["throughput"]), _line(event))
    return bool(log.values)


def _blocks(events: Sequence[dict[str, Any]], log: StepLog) -> None:
    start: tuple[float, float] | None = None
    for index, event in enumerate(events):
        if event.get("key") == "block_start":
            start = _moment(event)
        elif event.get("key") == "block_stop":
            end = _moment(event)
            if start and end and end[0] > start[0] and end[1] > start[1]:
                log.step(index, repr((end[1] - start[1]) / (end[0] - start[0])), _line(event))
            start = None


def _moment(event: dict[str, Any]) -> tuple[float, float] | None:
    metadata = event.get("metadata")
    samples = metadata.get("samples_count") if isinstance(metadata, dict) else None
    seconds, trained = number(str(event.get("time_ms"))), number(str(samples), -1)
    return None if seconds is None or trained is None else (seconds / 1000, trained)


MLPERF = MLPerf()
