"""What was planned and what a log measured -> a verdict: as planned, or by how much not."""

from dataclasses import replace

from planner.calibrate.logs.gpus import Likeness, likeness
from planner.calibrate.logs.layout import measured_run
from planner.calibrate.logs.reading import Reading
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.units import format_percent, format_steps
from planner.doctor.memory_numbers import compare_with_plan, read_numbers
from planner.machine.document import MeasuredRun
from planner.verify.planned import Planned, Range
from planner.verify.reasons import Part, Reason, parts, reasons

FAST_ENOUGH = 0.95
"""Of the planned speed."""
_ROUNDED = 0.01
"""By which the plan's own tokens per second may differ where they are printed."""
_UNSTEADY = 0.1
"""Half the span of the middle half of the steps, from which a median says little."""
_RANK_0 = ("the planner's script", "DeepSpeed", "torchtitan", "nanotron")
"""Logs that tell rank 0's memory, which is of the first stage."""


@frozen
class Check:
    """One amount of the run beside the plan's."""

    name: str
    unit: str
    """"seconds", "tokens/s" or "bytes"; "" of what is no amount."""
    measured: float | None
    """None where the log does not say it."""
    planned: Range
    passed: bool | None
    """None where it cannot be judged."""
    note: str = ""


@frozen
class Verdict:
    """Whether a run came as planned."""

    planned: Planned
    reading: Reading
    run: MeasuredRun | None
    """As machine.json has it; None where the log has no step."""
    checks: tuple[Check, ...]
    reasons: tuple[Reason, ...]
    """What explains most of what is not as planned, the largest first."""
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool | None:
        """Return whether all that was judged came as planned; None where nothing could be."""
        judged = [check.passed for check in self.checks if check.passed is not None]
        return all(judged) if judged else None


def judge(planned: Planned, reading: Reading, trace: Reading | None = None) -> Verdict:
    """Return the verdict on the run that a log speaks of.

    Args:
        planned: the plan.
        reading: of the run's log.
        trace: of a profiler's trace of the same run, which tells where the seconds went.

    Raises:
        InvalidInputError: the log is of another layout than the plan, or says nothing of a run.
    """
    _check_kind(reading)
    if trace is not None and planned.generates:
        raise InvalidInputError(
            "a trace is compared with a step of training, and the plan's step is GRPO's",
            hint="leave it out: the log is compared with the whole step",
            field="--trace",
        )
    if reading.ran_out:
        return _ran_out(planned, reading)
    _check_plan(planned, reading)
    reading = _as_long_as_written(planned, reading)
    run, remarks = _measured(planned, reading)
    if run.step_seconds is None:
        why = reading.notes[0] if reading.notes else "none of its lines has a step's time"
        raise InvalidInputError(
            f"{reading.file} ({reading.kind}) has no step that can be compared: {why}",
            hint="let the run go on for 20 steps or more",
            field="LOG",
        )
    notes = [*reading.notes, *remarks, *_remarks(reading)]
    is_comparable = _is_on_planned_gpus(planned, reading)
    if not is_comparable:
        ran_on = "CPUs" if reading.gpu == "cpu" else reading.gpu
        notes.append(
            f"the run was on {ran_on} and the plan is for {planned.gpu}: this shows only that its files run"
        )
    checks = _checks(planned, reading, run, is_comparable=is_comparable)
    if is_comparable:
        notes += _below(checks)
    checks += _learnt(reading)
    busy = None if planned.generates else (trace or reading).busy
    traced = () if busy is None else tuple(map(_traced, parts(planned, busy)))
    return Verdict(
        planned=planned,
        reading=reading,
        run=run,
        checks=(*checks, *traced),
        reasons=reasons(
            planned, {each.name: each.measured for each in checks if each.passed is False}, busy
        ),
        notes=tuple(notes),
    )


def _is_on_planned_gpus(planned: Planned, reading: Reading) -> bool:
    if reading.gpu == "cpu" or planned.is_of_cpus:
        return planned.is_of_cpus and reading.gpu in {"", "cpu"}
    return not reading.gpu or likeness(reading.gpu, planned.gpu) != Likeness.OTHER


def _check_kind(reading: Reading) -> None:
    """Refuse a log of exchanges, which no plan is compared with."""
    if reading.collectives:
        raise InvalidInputError(
            f"{reading.file} ({reading.kind}) is of links, not of a run",
            hint=f"planner calibrate --from {reading.file} takes it",
            field="LOG",
        )


def _check_plan(planned: Planned, reading: Reading) -> None:
    """Refuse the log of a script that another plan wrote: it prints what its plan says."""
    log, own = reading.log, planned.tokens_per_second
    said = log.planned_rate if log and log.world_size in {None, planned.ranks} else None
    if own and said and abs(said / own - 1) > _ROUNDED:
        raise InvalidInputError(
            f"{reading.file} is of another plan: its own says {said:,.0f} tokens/s, and this one {own:,.0f}",
            hint="--plan DIR, the folder whose launch.sh wrote the log",
            field="--plan",
        )


def _as_long_as_written(planned: Planned, reading: Reading) -> Reading:
    """Return the log of GRPO with the tokens that it counted for those of the plan: completions end when they do."""
    log = reading.log
    if not planned.generates or log is None or not log.per_step:
        return reading
    own = replace(log, tokens_per_step=round(log.per_step[0].amount), per_step=())
    return replace(reading, log=own)


def _measured(planned: Planned, reading: Reading) -> tuple[MeasuredRun, tuple[str, ...]]:
    """Return the run, measured against the plan's request; of what contradicts it the plan is named."""
    try:
        return measured_run(reading, planned.request)
    except InvalidInputError as error:
        if error.field != "--layout":
            raise
        raise InvalidInputError(
            error.message, hint="--plan DIR, the plan of the run that wrote the log", field="--plan"
        ) from None


def _below(checks: tuple[Check, ...]) -> list[str]:
    """Say what is far below its range: no failure, and a reason to look."""
    notes = []
    for check in checks:
        if check.measured is None or check.measured >= check.planned.low:
            continue
        if check.unit == "bytes":
            notes.append(
                f"less memory {check.name} than planned: a larger micro-batch, or less recompute, may fit"
            )
        elif check.name == "step":
            notes.append(
                "a step is faster than the whole range: check that batch and sequence length are the plan's"
            )
    return notes


def _checks(
    planned: Planned, reading: Reading, run: MeasuredRun, *, is_comparable: bool
) -> tuple[Check, ...]:
    seconds, tokens = run.step_seconds or 0.0, planned.tokens_per_step
    counted = reading.log.tokens_per_step if reading.log and planned.generates else None
    reserved = reading.log.reserved_bytes if reading.log else None
    fast = seconds * FAST_ENOUGH <= planned.step_seconds.likely if is_comparable else None
    step = planned.step_seconds
    speed = Range(low=tokens / step.high, likely=tokens / step.likely, high=tokens / step.low)
    is_first = planned.stages > 1 and reading.kind in _RANK_0
    allocated = planned.first_peak_bytes if is_first else planned.peak_bytes
    return (
        Check(name="step", unit="seconds", measured=seconds, planned=step, passed=fast),
        Check(
            name="tokens/s",
            unit="tokens/s",
            measured=(counted or tokens) / seconds,
            planned=speed,
            passed=fast,
        ),
        _memory(
            "allocated",
            run.peak_bytes,
            allocated,
            "of rank 0" if is_first else "",
            is_comparable=is_comparable,
        ),
        _memory("reserved", reserved, planned.reserved_bytes, is_comparable=is_comparable),
    )


def _memory(
    name: str, measured: float | None, planned: Range, note: str = "", *, is_comparable: bool
) -> Check:
    passed = None
    if measured is not None and is_comparable:
        passed = measured <= planned.high
    return Check(
        name=name, unit="bytes", measured=measured, planned=planned, passed=passed, note=note
    )


def _learnt(reading: Reading) -> tuple[Check, ...]:
    if not reading.lost:
        return ()
    return (
        Check(
            name="loss",
            unit="",
            measured=None,
            planned=Range(low=0.0, likely=0.0, high=0.0),
            passed=False,
            note=f"the loss is no number, first in {reading.lost!r}",
        ),
    )


def _traced(part: Part) -> Check:
    planned = Range(low=part.planned, likely=part.planned, high=part.planned)
    return Check(
        name=part.name, unit="seconds", measured=part.measured, planned=planned, passed=None
    )


def _ran_out(planned: Planned, reading: Reading) -> Verdict:
    check = Check(
        name="memory",
        unit="bytes",
        measured=None,
        planned=planned.reserved_bytes,
        passed=False,
        note="the run ran out of memory",
    )
    return Verdict(
        planned=planned,
        reading=reading,
        run=None,
        checks=(check, *_until_then(planned, reading)),
        reasons=reasons(planned, {"memory": None}, None),
        notes=(*reading.notes, *_of_the_message(planned, reading.ran_out)),
    )


def _of_the_message(planned: Planned, message: str) -> tuple[str, ...]:
    numbers = read_numbers(message)
    return () if numbers is None else compare_with_plan(numbers, planned.data)


def _until_then(planned: Planned, reading: Reading) -> tuple[Check, ...]:
    """Return the memory that a run said it had before it ran out: shown, not judged."""
    log = reading.log
    said = (
        ("allocated", log.peak_bytes if log else None, planned.peak_bytes),
        ("reserved", log.reserved_bytes if log else None, planned.reserved_bytes),
    )
    return tuple(
        Check(
            name=name, unit="bytes", measured=measured, planned=amounts, passed=None, note="before"
        )
        for name, measured, amounts in said
        if measured is not None
    )


def _remarks(reading: Reading) -> list[str]:
    """Say what makes the figures weaker than they look."""
    log, steady = reading.log, reading.steady
    remarks = []
    if log is not None and log.is_mean:
        remarks.append("its step is the mean over the run: warm-up and checkpoints are in it")
    elif steady is not None and not steady.left_out:
        remarks.append(f"{format_steps(steady.steps)}: too few to leave out a warm-up")
    if steady is not None and steady.spread > _UNSTEADY:
        apart = f"the middle half of its steps is within {format_percent(steady.spread)}"
        remarks.append(f"{apart}: was the machine doing something else?")
    if reading.damaged:
        remarks.append(
            f"{len(reading.damaged)} lines could not be used, such as {reading.damaged[0]!r}"
        )
    return remarks
