"""A log -> what was measured, by the first kind that recognises it; what was not understood is counted."""

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from planner.calibrate.logs import kineto, nccl
from planner.calibrate.logs.frameworks import DEEPSPEED, MAXTEXT, NANOGPT, NANOTRON, NEMO
from planner.calibrate.logs.kineto import Busy
from planner.calibrate.logs.log_file import LogText, read_bytes, shown, text_of, unpacked
from planner.calibrate.logs.megatron import MEGATRON
from planner.calibrate.logs.mlperf import MLPERF
from planner.calibrate.logs.script import SCRIPT
from planner.calibrate.logs.steps import Steady, StepLog, steady
from planner.calibrate.logs.torchtitan import TORCHTITAN
from planner.calibrate.logs.trainer import PROGRESS_BAR, TRAINER, TRAINER_STATE
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.units import format_bytes, format_seconds
from planner.machine.document import CollectiveCurve

RECOGNISERS = (
    *(MLPERF, SCRIPT, MEGATRON, DEEPSPEED, NEMO, TORCHTITAN, NANOTRON, MAXTEXT, NANOGPT),
    *(TRAINER, PROGRESS_BAR),
)
"""Of training logs, the surest mark first."""
KINDS = ", ".join(
    ["nccl-tests", *(each.name for each in RECOGNISERS), TRAINER_STATE.name, kineto.NAME]
)


OUT_OF_MEMORY = "a run that ran out of memory"
_RAN_OUT = re.compile(
    r"OutOfMemoryError|(?:CUDA|HIP) out of memory|RESOURCE_EXHAUSTED: Out of memory"
)
_WARM_UP = "its one step is the first, which is warm-up: it says nothing of those that follow"
_LOSS = re.compile(
    r"(?<!train_)loss['\"]?\s{0,20}[:=]?\s{0,20}['\"]?(?:(?P<none>[-+]?(?:nan|inf)(?:inity)?\b)|[-+]?\d)",
    re.IGNORECASE,
)
"""As every framework prints it; the train_loss that ends a Trainer's log is a mean over the run."""


@frozen
class Reading:
    """What one log says."""

    file: str
    kind: str
    log: StepLog | None = None
    """Of a training run."""
    steady: Steady | None = None
    """Its steps, in the log's unit; None where no step could be read."""
    collectives: tuple[CollectiveCurve, ...] = ()
    gpu: str = ""
    """As the log names it; "" where it does not, "cpu" for CPUs."""
    nccl: str = ""
    busy: Busy | None = None
    """Of a trace."""
    lines: int = 0
    unread: int = 0
    """Lines that are nothing to this kind."""
    first_unread: str = ""
    damaged: tuple[str, ...] = ()
    """Lines of this kind whose figures cannot be used."""
    notes: tuple[str, ...] = ()
    ran_out: str = ""
    """The message of a run that ended for want of memory; "" of all others."""
    lost: str = ""
    """The first line whose loss is no number, of a run whose last loss is none either."""

    @property
    def figures(self) -> str:
        """Return the step and the memory that the log says without its layout; "" for neither."""
        said, log = [], self.log
        if log is not None and self.steady is not None and log.unit == "seconds":
            said.append(f"{format_seconds(self.steady.value)} a step")
        if log is not None and log.reserved_bytes:
            said.append(f"{format_bytes(log.reserved_bytes)} reserved")
        return ", ".join(said)


def read_log(file: str) -> Reading:
    """Return what a log says; of a damaged one what is left.

    Raises:
        InvalidInputError: it cannot be read, or is none of the known kinds.
    """
    return read_log_bytes(file, read_bytes(Path(file)))


def read_log_bytes(file: str, packed: bytes) -> Reading:
    """Return what the bytes of a log say, packed with gzip or not.

    Raises:
        InvalidInputError: they are no text, or of none of the known kinds.
    """
    raw = unpacked(file, packed)
    text = text_of(file, raw)
    value = _object(raw) if text.lines[0].lstrip().startswith("{") else None
    if value is not None and kineto.recognises_object(value):
        log, busy = kineto.read_object(value)
        return _of_steps(text, log, busy)
    if value is not None and TRAINER_STATE.recognises_object(value):
        return _of_steps(text, TRAINER_STATE.read_object(value))
    if nccl.recognises(text.lines):
        return _of_collectives(text)
    for kind in RECOGNISERS:
        if kind.recognises(text.lines):
            return _of_steps(text, kind.read(text.lines))
    if ran_out := _ran_out(text):
        return Reading(file=text.name, kind=OUT_OF_MEMORY, lines=len(text.lines), ran_out=ran_out)
    raise InvalidInputError(
        f"{shown(file)} is no log that is known; it begins with {shown(text.lines[0], 60)!r}",
        hint=f"known are {KINDS}",
        field="LOG",
    )


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _of_steps(text: LogText, log: StepLog, busy: Busy | None = None) -> Reading:
    log.settle()
    values = [log.values[step] for step in sorted(log.values)]
    is_trace = log.kind in (kineto.NAME, TRAINER_STATE.name)
    is_warm_up = len(values) == 1 and max(log.values) <= 1 and not (log.is_mean or is_trace)
    found = None
    if values and not is_warm_up:
        found = steady(values, is_seconds=log.unit == "seconds")
    return Reading(
        file=text.name,
        kind=log.kind,
        log=log,
        steady=found,
        gpu=shown(log.device),
        busy=busy,
        lines=len(text.lines),
        **({} if is_trace else _unread(text, log.understood, log.damaged)),
        damaged=tuple(map(shown, log.damaged)),
        notes=(
            *log.notes,
            *((_WARM_UP,) if is_warm_up else ()),
            *(found.said(log.counted) if found else ()),
            *_cut(text),
        ),
        ran_out="" if is_trace else _ran_out(text),
        lost="" if is_trace else _lost(text),
    )


def _of_collectives(text: LogText) -> Reading:
    log = nccl.read(text.lines)
    return Reading(
        file=text.name,
        kind="nccl-tests",
        collectives=tuple(log.curves),
        gpu=shown(log.gpu),
        nccl=shown(log.nccl),
        lines=len(text.lines),
        **_unread(text, log.understood, log.damaged),
        damaged=tuple(map(shown, log.damaged)),
        notes=(*log.notes, *_cut(text)),
    )


def _unread(text: LogText, understood: Collection[str], damaged: Collection[str]) -> dict[str, Any]:
    known = {*understood, *damaged}
    unread = [line for line in text.lines if line not in known]
    return {"unread": len(unread), "first_unread": shown(unread[0]) if unread else ""}


def _ran_out(text: LogText) -> str:
    return next((line for line in text.lines if _RAN_OUT.search(line)), "")


def _lost(text: LogText) -> str:
    first, is_lost = "", False
    for line in text.lines:
        losses = [said["none"] for said in _LOSS.finditer(line)]
        if losses:
            is_lost = any(losses)
            first = first or (shown(line) if is_lost else "")
    return first if is_lost else ""


def _cut(text: LogText) -> tuple[str, ...]:
    return ("it is longer than is read: the rest is left out",) if text.is_cut else ()
