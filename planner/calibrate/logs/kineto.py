"""A trace of PyTorch's profiler: seconds of a step, and what its GPU did in them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.calibrate.logs.log_file import shown
from planner.calibrate.logs.steps import LARGEST_MEMORY, LONGEST_STEP, StepLog, number
from planner.core.frozen import frozen

NAME = "a profiler's trace"
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_STEP = "ProfilerStep#"
_MICRO = 1e-6
_LATEST = 1e18
"""Microseconds since 1970 that a trace may speak of."""

Interval = tuple[float, float]


@dataclass(slots=True, kw_only=True)
class Busy:
    """What a GPU did in the mean step of a trace, in seconds."""

    steps: int = 0
    compute_seconds: float = 0.0
    """Kernels that compute, where several run at once counted once."""
    communication_seconds: float = 0.0
    """Kernels of NCCL or RCCL."""
    exposed_communication_seconds: float = 0.0
    """Of those, what no kernel computes beside."""
    idle_seconds: float = 0.0
    """Of the step, without any kernel or copy."""
    seconds_by_stream: Mapping[str, float] = field(default_factory=dict)


@frozen
class _Event:
    name: str
    category: str
    stream: str
    start: float
    end: float
    """Seconds."""


def recognises_object(value: dict[str, Any]) -> bool:
    """Return whether a JSON object is a trace."""
    return isinstance(value.get("traceEvents"), list)


def read_object(value: dict[str, Any]) -> tuple[StepLog, Busy | None]:
    """Return the steps of a trace, and what the GPU did in them; None without steps or kernels.

        step: a span ProfilerStep#N of the CPU;  idle = step - union of all kernels and copies
        exposed communication = union of all kernels - union of those that compute

    Leaves out: a profiled step is longer than one without the profiler.
    Source: pytorch/kineto, libkineto/src/output_json.cpp; facebookresearch/HolisticTraceAnalysis, `get_temporal_breakdown`.
    """
    log = StepLog(kind=NAME)
    events = list(_events(value["traceEvents"], log))
    spans: dict[int, Interval] = {}
    for event in events:
        if event.name.startswith(_STEP) and event.category != "gpu_user_annotation":
            digits = event.name.removeprefix(_STEP)
            step = number(digits, -1, 1e9)
            if step is not None:
                spans[int(step)] = (event.start, event.end)
                log.step(int(step), repr(event.end - event.start), event.name)
    _take_memory(value["traceEvents"], log)
    _take_group(value, log)
    if not log.device and not any(event.category == "kernel" for event in events):
        log.device = "cpu"
    log.notes.append("a profiled step is longer than one without the profiler")
    return log, _busy(events, list(spans.values()))


def _events(raw: Sequence[Any], log: StepLog) -> Iterable[_Event]:
    for item in raw:
        if not isinstance(item, dict) or item.get("ph") != "X":
            continue
        start, length = item.get("ts"), item.get("dur")
        if not isinstance(start, int | float) or not isinstance(length, int | float):
            log.damaged.append(repr(item)[:200])
            continue
        if not 0 <= length <= LONGEST_STEP / _MICRO or not 0 <= start <= _LATEST:
            log.damaged.append(repr(item)[:200])
            continue
        arguments = item.get("args")
        stream = arguments.get("stream") if isinstance(arguments, dict) else None
        yield _Event(
            name=str(item.get("name"))[:200],
            category=str(item.get("cat")),
            stream=shown(str(stream), 20),
            start=start * _MICRO,
            end=(start + length) * _MICRO,
        )


def _take_memory(raw: Sequence[Any], log: StepLog) -> None:
    """Take the largest totals of the profiler's memory events, of GPUs alone."""
    for item in raw:
        arguments = item.get("args") if isinstance(item, dict) else None
        if not isinstance(arguments, dict) or item.get("name") != "[memory]":
            continue
        if arguments.get("Device Type") != 1:
            continue
        for name, key in (("peak", "Total Allocated"), ("reserved", "Total Reserved")):
            amount = arguments.get(key)
            if isinstance(amount, int | float) and 0 < amount <= LARGEST_MEMORY:
                log.memory("[memory]", **{name: float(amount)})


def _take_group(value: dict[str, Any], log: StepLog) -> None:
    group = value.get("distributedInfo")
    ranks = group.get("world_size") if isinstance(group, dict) else None
    if isinstance(ranks, int) and 0 < ranks <= 2**20:
        log.world_size = ranks
    devices = value.get("deviceProperties")
    if isinstance(devices, list) and devices and isinstance(devices[0], dict):
        log.device = shown(str(devices[0].get("name", "")))


def _busy(events: Sequence[_Event], spans: Sequence[Interval]) -> Busy | None:
    """Return the mean over the steps from the first one's start to the last one's end."""
    on_gpu = [event for event in events if event.category in _ON_GPU]
    if not spans or not on_gpu:
        return None
    window = (min(start for start, _ in spans), max(end for _, end in spans))
    within = [event for event in on_gpu if event.start >= window[0] and event.end <= window[1]]
    kernels = [event for event in within if event.category == "kernel"]
    exchanging = [event for event in kernels if "nccl" in event.name.lower()]
    computing = [event for event in kernels if "nccl" not in event.name.lower()]
    compute, every = _union(computing), _union(within)
    by_stream: dict[str, float] = {}
    for event in within:
        by_stream[event.stream] = by_stream.get(event.stream, 0.0) + event.end - event.start
    steps = len(spans)
    return Busy(
        steps=steps,
        compute_seconds=compute / steps,
        communication_seconds=_union(exchanging) / steps,
        exposed_communication_seconds=(_union(kernels) - compute) / steps,
        idle_seconds=max(0.0, window[1] - window[0] - every) / steps,
        seconds_by_stream={name: amount / steps for name, amount in by_stream.items()},
    )


def _union(events: Iterable[_Event]) -> float:
    total, reached = 0.0, float("-inf")
    for start, end in sorted((event.start, event.end) for event in events):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
