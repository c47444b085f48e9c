"""nccl-tests and rccl-tests: seconds of one collective operation by the size of its message."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from planner.calibrate.logs.log_file import shown
from planner.calibrate.logs.steps import LONGEST_STEP, number
from planner.machine.document import CollectiveCurve, CollectivePoint

_OPERATIONS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send_receive",
}
_PROGRAM = re.compile(r"\b(?P<name>[a-z_]+)_perf(?:_mpi)?\b")
_RANK = re.compile(
    r"#\s+Rank\s+(?P<rank>\d+)(?:\s+Group\s+\d+)?\s+Pid\s+\d+ on\s+(?P<host>\S+) device"
    r"\s+\d+ \S+ ?(?P<gpu>.*)$"
)
_ROW = re.compile(
    r"(?:^|\s|>|:)(?P<size>\d+)\s+(?P<count>\d+)\s+(?P<type>[a-z]\w+)\s+(?P<redop>\w+)\s+(?P<root>-?\d+)\s+"
    r"(?P<time>\S+)\s+(?P<algbw>\S+)\s+(?P<busbw>\S+)\s+(?P<wrong>\S+)"
    r"(?:\s+(?P<in_place>\S+)\s+\S+\s+\S+\s+(?P<in_place_wrong>\S+))?"
)
_VERSION = re.compile(r"NCCL version (?P<nccl>[\w.+-]+)")
_HEAD = re.compile(r"#\s+size\s+count\s+type")
_MOST_POINTS = 2000
_ROUNDED = 0.02
"""By how much a ratio of two printed bandwidths may be off."""
_NO_CHECK = "N/A"
_LARGEST_ERROR = 0.1
"""Of a result, in releases before 2.13, which print the largest error in place of how many results are wrong."""


@dataclass(slots=True, kw_only=True)
class CollectiveLog:
    """What the output of a test holds; of several in one file, all of them."""

    curves: list[CollectiveCurve] = field(default_factory=list)
    gpu: str = ""
    nccl: str = ""
    understood: set[str] = field(default_factory=set)
    damaged: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Test:
    operation: str = ""
    hosts: dict[int, str] = field(default_factory=dict)
    """Of each rank."""
    points: dict[int, float] = field(default_factory=dict)
    """Seconds by size in bytes."""


def recognises(lines: Sequence[str]) -> bool:
    """Return whether the head of the table is there."""
    return any(_HEAD.search(line) for line in lines)


def read(lines: Sequence[str]) -> CollectiveLog:
    """Return the curves that the tables hold: the out-of-place times, where there are none the others.

    Rows with wrong results are left out. A size is nccl-tests': of the largest buffer of a rank.
    Source: NVIDIA/nccl-tests, src/util.cu, src/common.cu, doc/PERFORMANCE.md.
    """
    log, test = CollectiveLog(), _Test()
    has_rows = False
    for line in lines:
        if "#" in line[:20]:
            log.understood.add(line)
        if rank := _RANK.search(line):
            if has_rows:
                _close(test, log)
                test, has_rows = _Test(), False
            test.hosts[int(rank["rank"][:9])] = rank["host"]
            log.gpu = log.gpu or shown(rank["gpu"])
        elif program := _PROGRAM.search(line):
            if has_rows and "concluded" not in line:
                _close(test, log)
                test, has_rows = _Test(), False
            test.operation = _OPERATIONS.get(program["name"], "") or test.operation
        elif version := _VERSION.search(line):
            log.nccl = log.nccl or version["nccl"]
            log.understood.add(line)
        elif row := _ROW.search(line):
            has_rows = True
            _take(row, line, test, log)
    _close(test, log)
    return log


def _take(row: re.Match[str], line: str, test: _Test, log: CollectiveLog) -> None:
    size = number(row["size"], 0, 2.0**60)
    is_out = row["time"] != "N/A"
    text, wrong = (
        (row["time"], row["wrong"]) if is_out else (row["in_place"], row["in_place_wrong"])
    )
    microseconds = None if text is None else number(text, 0, LONGEST_STEP * 1e6)
    if size is None or microseconds is None or not _is_right(wrong):
        if row["size"] != "0":
            log.damaged.append(line)
        return
    if not test.operation:
        test.operation = _operation(row)
    if len(test.points) < _MOST_POINTS:
        test.points[int(size)] = microseconds * 1e-6
    log.understood.add(line)


def _is_right(wrong: str | None) -> bool:
    return wrong == _NO_CHECK or number(wrong or "", -1, _LARGEST_ERROR) is not None


def _operation(row: re.Match[str]) -> str:
    """Return what was measured, by the ratio of both bandwidths; "" where several have the same.

    bus / algorithm bandwidth: all_reduce 2 (n - 1) / n, reduce_scatter (n - 1) / n with a sum
    """
    algorithm, bus = number(row["algbw"], 0.1), number(row["busbw"])
    if algorithm is None or bus is None or row["redop"] == "none":
        return ""
    ratio = bus / algorithm
    if ratio > 1 + _ROUNDED:
        return "all_reduce"
    return "reduce_scatter" if row["root"] == "-1" and ratio < 1 - _ROUNDED else ""


def _close(test: _Test, log: CollectiveLog) -> None:
    """Keep a table, or say why it cannot be."""
    if not test.points:
        return
    ranks, nodes = len(test.hosts), len(set(test.hosts.values()))
    if not test.operation:
        log.notes.append(
            "a table does not say of which operation it is: keep the line with ..._perf"
        )
    elif ranks <= 1 or set(test.hosts) != set(range(ranks)):
        log.notes.append("a table does not say of how many ranks it is: keep all lines of '# Rank'")
    else:
        points = (CollectivePoint(bytes=b, seconds=s) for b, s in sorted(test.points.items()))
        log.curves.append(
            CollectiveCurve(
                operation=test.operation, ranks=ranks, nodes=nodes, points=tuple(points)
            )
        )
