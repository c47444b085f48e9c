"""Times of the same run on several numbers of GPUs -> what they mean, and what to do next."""

from planner.catalog.findings import instead
from planner.core.documented import shown_name
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.units import format_gpus
from planner.doctor.timing_rules import RULES
from planner.doctor.timings import Timings

_ENOUGH = 2
"""Numbers of GPUs beyond which one more is not what is missing."""
_START_UP_OR_EXCHANGES = "TIM008"
_START_UP_IS_MISSING = "time from the launch to the first step (--start-up-seconds): it tells start-up from communication"


@frozen
class Diagnosis:
    """What times mean, and what to do next."""

    code: str
    name: str
    message: str
    arithmetic: tuple[str, ...]
    ceiling: float | None
    next: str
    batches: str
    """What the batches were, where they were said."""


def diagnose(timings: Timings) -> Diagnosis:
    """Return the first diagnosis that fits the times.

    Raises:
        InvalidInputError: the start-up is longer than a run.
    """
    if min(timings.loop_seconds(gpus) for gpus in timings.seconds) <= 0:
        raise InvalidInputError(
            "the start-up is as long as a whole run",
            hint="it is part of the seconds of --times",
            field="--start-up-seconds",
        )
    for code, rule in RULES:
        found = rule(timings)
        if found is not None:
            return Diagnosis(
                code=code,
                name=shown_name(rule),
                message=found.message,
                arithmetic=found.arithmetic,
                ceiling=found.ceiling,
                next=_next(code, timings),
                batches=_batches(timings),
            )
    return _nothing(timings)


def _nothing(timings: Timings) -> Diagnosis:
    speed_up, times = f"{timings.speed_up:.2f}", f"{timings.times_the_gpus:g}"
    return Diagnosis(
        code="",
        name="between",
        message=f"{speed_up} times as fast on {times} times the GPUs: nothing stands out",
        arithmetic=(),
        ceiling=None,
        next=_what_would_tell(timings),
        batches=_batches(timings),
    )


def _what_would_tell(timings: Timings) -> str:
    if len(timings.seconds) > _ENOUGH:
        return _START_UP_IS_MISSING
    if timings.start_up_seconds is None:
        return (
            "a third number of GPUs, or the seconds to the first step (--start-up-seconds),"
            " tells start-up from communication"
        )
    return (
        f"a step costs {timings.step_growth:.2f} times as much on {format_gpus(timings.most)}:"
        " a larger batch per GPU hides more of it"
    )


def _next(code: str, timings: Timings) -> str:
    """Return what a rule says to do; that of start-up asks for no third number of GPUs where there is one."""
    if code == _START_UP_OR_EXCHANGES and len(timings.seconds) > _ENOUGH:
        return _START_UP_IS_MISSING
    return instead("timings", code)


def _batches(timings: Timings) -> str:
    if timings.batch_per_gpu:
        said = ", ".join(
            f"{timings.batch_per_gpu * gpus} on {format_gpus(gpus)}" for gpus in timings.seconds
        )
        return f"{timings.batch_per_gpu} per GPU is a global batch of {said}"
    if timings.global_batch:
        said = ", ".join(
            f"{timings.global_batch / gpus:g} on {format_gpus(gpus)}" for gpus in timings.seconds
        )
        return f"a global batch of {timings.global_batch} is, per GPU, {said}"
    return ""
