"""Logs of one machine -> what machine.json takes of them: runs, curves of collectives, versions."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from statistics import median
from typing import Any

from planner import __version__
from planner.calibrate.logs.gpus import Likeness, gpu_name, likeness
from planner.calibrate.logs.layout import measured_run
from planner.calibrate.logs.log_file import shown
from planner.calibrate.logs.reading import Reading
from planner.calibrate.runs import machine_of_runs, unrepeated
from planner.catalog import records
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.units import format_bytes, format_percent, format_ranks, format_seconds
from planner.machine.document import CollectiveCurve, Hardware, Machine, MeasuredRun

_FAR = 1.25
"""Times that two tables of one exchange may be apart, from which that is said."""


@frozen
class LogFigures:
    """What several logs say of one machine."""

    runs: tuple[MeasuredRun, ...]
    collectives: tuple[CollectiveCurve, ...]
    software: Mapping[str, str]
    gpu: str
    """As the catalogue names it; "" where no log names one."""
    lines: tuple[str, ...]
    """What was read of each log, and what was not, for a person."""


def figures_of_logs(
    readings: Iterable[tuple[Reading, Mapping[str, Any] | None]],
) -> LogFigures:
    """Return what logs say of the machine on which they were written.

    Args:
        readings: of each log, with an estimate request of what it does not say itself.

    Raises:
        InvalidInputError: a log lacks its layout or contradicts it, the logs name several GPUs, or
            there is nothing in any of them.
    """
    runs: list[MeasuredRun] = []
    curves: dict[tuple[str, int, int], CollectiveCurve] = {}
    software: dict[str, str] = {}
    gpus: dict[str, str] = {}
    lines: list[str] = []
    for reading, layout in readings:
        if reading.gpu:
            gpus.setdefault(gpu_name(reading.gpu), reading.file)
        if reading.nccl:
            software["nccl"] = reading.nccl
        lines += _told(reading)
        lines += _take_curves(reading, curves)
        if reading.steady is not None:
            run, notes = measured_run(reading, layout)
            check_gpu(reading, run)
            runs.append(run)
            lines += [f"  {run_line(run)}", *(f"  {note}" for note in notes)]
    _check_one_gpu(gpus)
    if not runs and not curves:
        raise InvalidInputError(
            f"no step and no collective could be read: {'; '.join(lines)}"[:1000],
            hint="give the whole output of a run of 20 steps or more, or of nccl-tests",
            field="--from",
        )
    return LogFigures(
        runs=tuple(runs),
        collectives=tuple(curves.values()),
        software=software,
        gpu=next(iter(gpus), ""),
        lines=tuple(lines),
    )


def _take_curves(
    reading: Reading, curves: dict[tuple[str, int, int], CollectiveCurve]
) -> list[str]:
    """Add a log's curves, the later of two in place of the earlier; return where these are far apart."""
    said = []
    for each in reading.collectives:
        before = curves.get(_of_which(each))
        times = 1.0 if before is None else _times(each, before)
        if not 1 / _FAR <= times <= _FAR:
            took = (
                f"took {times:.1f} times as long"
                if times > 1
                else f"was {1 / times:.1f} times as fast"
            )
            said.append(
                f"  {each.operation} among {format_ranks(each.ranks)} {took} as in a table before it:"
                " the later one counts"
            )
        curves[_of_which(each)] = each
    return said


def _times(curve: CollectiveCurve, before: CollectiveCurve) -> float:
    """Return how many times as long as before an exchange takes: of small messages or of large, what is farther apart."""
    seconds = {point.bytes: point.seconds for point in before.points}
    ratios = [
        point.seconds / seconds[point.bytes]
        for point in sorted(curve.points, key=lambda point: point.bytes)
        if point.bytes in seconds
    ]
    third = max(1, len(ratios) // 3)
    ends = [median(each) for each in (ratios[:third], ratios[-third:]) if each]
    return max(ends, key=lambda times: abs(math.log(times)), default=1.0)


def machine_of_logs(figures: LogFigures, known: Machine | None = None) -> Machine:
    """Return a machine with what its logs say added; its anchors are not made yet.

    Raises:
        InvalidInputError: the logs are of other GPUs than the machine or their layouts, or do not say of which.
    """
    of_known = known.cluster.gpu if known else ""
    if figures.gpu and of_known and likeness(figures.gpu, of_known) != Likeness.SAME:
        raise InvalidInputError(
            f"the logs are of {figures.gpu}, and the machine of {of_known}",
            hint="a machine has a file of its own",
            field="--machine",
        )
    machine = known or _hardware_alone(figures)
    if figures.runs:
        machine = machine_of_runs(unrepeated(figures.runs, known), known)
        _check_layouts(figures.gpu, machine.cluster.gpu)
    curves = {_of_which(each): each for each in (*machine.collectives, *figures.collectives)}
    return replace(
        machine,
        collectives=tuple(curves.values()),
        software={**machine.software, **figures.software},
    )


def check_gpu(reading: Reading, run: MeasuredRun) -> None:
    """Refuse what a log of one kind of GPU would say of another.

    Raises:
        InvalidInputError: the log and the layout name different kinds.
    """
    given = (run.request.get("cluster") or {}).get("gpu")
    if given and reading.gpu and likeness(reading.gpu, str(given)) == Likeness.OTHER:
        raise InvalidInputError(
            f"{shown(reading.file)} is of {reading.gpu}, and the layout of {shown(str(given))}",
            hint="name the GPU that the run was on: --layout '... --gpu NAME'",
            field="--layout",
        )


def _check_layouts(logged: str, named: str) -> None:
    """Refuse what is a log of one kind of GPU, such as nccl-tests', beside a run whose layout has another."""
    if logged and likeness(logged, named) == Likeness.OTHER:
        raise InvalidInputError(
            f"the logs are of {logged}, and the layout of {named}",
            hint="one machine.json per machine: give the logs of one",
            field="--layout",
        )


def _hardware_alone(figures: LogFigures) -> Machine:
    if not figures.runs and not figures.gpu:
        raise InvalidInputError(
            "the logs do not say of which GPU they are",
            hint="keep nccl-tests' lines of '# Rank', or add to a machine with --machine FILE",
            field="--from",
        )
    if not figures.runs and gpu_name(figures.gpu) not in records.gpu_names():
        raise InvalidInputError(
            f"the logs are of {shown(figures.gpu)}, which the catalogue does not know",
            hint="`planner gpus` lists those it knows; add to a machine of that GPU with --machine FILE",
            field="--from",
        )
    nodes = max((each.nodes for each in figures.collectives), default=1)
    gpus = max((each.ranks // each.nodes for each in figures.collectives), default=1)
    return Machine(
        created=date.min.isoformat(),
        cluster=Hardware(gpu=figures.gpu, gpus_per_node=max(1, gpus), nodes=nodes),
        planner=__version__,
    )


def _of_which(curve: CollectiveCurve) -> tuple[str, int, int]:
    return curve.operation, curve.ranks, curve.nodes


def run_line(run: MeasuredRun) -> str:
    """Return a run as one line: its step and its memory."""
    parts = [] if run.step_seconds is None else [f"{format_seconds(run.step_seconds)} a step"]
    if run.peak_bytes is not None:
        parts.append(f"{format_bytes(run.peak_bytes)} allocated")
    return ", ".join(parts)


def _told(reading: Reading) -> list[str]:
    lines = [f"{shown(reading.file)}: {reading.kind}, {_amount(reading)}"]
    lines += [
        f"  {each.operation} among {each.ranks} ranks on {each.nodes} node{'s' if each.nodes > 1 else ''}:"
        f" {len(each.points)} sizes"
        for each in reading.collectives
    ]
    lines += [f"  {note}" for note in reading.notes]
    if reading.damaged:
        lines.append(
            f"  {len(reading.damaged)} lines could not be used, first: {reading.damaged[0]}"
        )
    if reading.unread:
        lines.append(f"  {reading.unread} lines say nothing known, first: {reading.first_unread}")
    return lines


def _amount(reading: Reading) -> str:
    steady = reading.steady
    if steady is None:
        return f"{reading.lines} lines"
    if reading.log is not None and reading.log.is_mean:
        return "the mean step of a run, its warm-up in it"
    left_out = f"{steady.left_out} of the warm-up left out"
    within = f"the middle half within {format_percent(steady.spread)}"
    of = reading.log.counted if reading.log is not None and steady.steps > 1 else "step"
    return f"median of {steady.steps:,} {of}, {left_out}, {within}"


def _check_one_gpu(gpus: Mapping[str, str]) -> None:
    names = list(gpus)
    if any(likeness(name, names[0]) != Likeness.SAME for name in names[1:]):
        named = ", ".join(f"{shown(file)} of {gpu}" for gpu, file in list(gpus.items())[:3])
        raise InvalidInputError(
            f"the logs are of several kinds of GPU: {named}",
            hint="one machine.json per machine: give the logs of one",
            field="--from",
        )
