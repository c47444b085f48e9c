"""What times of the same run on several numbers of GPUs mean: one function per diagnosis, in the order they are asked."""

from collections.abc import Callable

from planner.core.frozen import frozen
from planner.core.units import format_fraction, format_gpus
from planner.doctor.timings import COSTLIER_STEP, Timings, fixed_seconds, prefers_costlier_steps

_FLAT_LOW, _FLAT_HIGH = 0.95, 1.2
"""Between these, the time has not changed with the GPUs."""
_GOOD = 0.85
"""Of the ideal speed-up; below it something is in the way."""
_IMPOSSIBLE = 1.05
_LOADER_SHARE = 0.8
"""Of the run that iterating the loader alone takes, from which on the GPUs wait for data."""
_OF_A_NODE = 8
"""GPUs that a node mostly has at the most."""
_NOTABLE_START = 0.2
"""Of the largest run."""
LONGEST_START_SECONDS = 180.0
"""What is still believed to be a start-up where nobody measured it; more is something else."""


@frozen
class Found:
    """What one diagnosis says of the times."""

    message: str
    arithmetic: tuple[str, ...]
    ceiling: float | None = None
    """The best speed-up over the fewest GPUs that more of them can give; None for no limit seen."""


def input_is_slow(timings: Timings) -> Found | None:
    """The loaders alone take nearly as long as the run: the GPUs wait for data."""
    if timings.loader_seconds is None:
        return None
    seconds = timings.loop_seconds(timings.most)
    share = timings.loader_seconds / seconds
    if share < _LOADER_SHARE:
        return None
    return Found(
        message=f"input-bound: the loaders alone take {timings.loader_seconds:.1f} s of the"
        f" {seconds:.1f} s that {format_gpus(timings.most)} take",
        arithmetic=(
            f"{timings.loader_seconds:.1f} s / {seconds:.1f} s = {format_fraction(share)}",
        ),
        ceiling=timings.seconds[timings.fewest]
        / (timings.loader_seconds + (timings.start_up_seconds or 0.0)),
    )


def steps_are_fixed(timings: Timings) -> Found | None:
    """The number of steps is fixed, so more GPUs do more samples in about the same time."""
    ratio, times = timings.ratio(timings.most), timings.times_the_gpus
    if timings.fixed != "steps" or ratio * _GOOD > 1 or ratio * _IMPOSSIBLE < 1:
        return None
    return Found(
        message=f"steps are fixed, so the time does not fall: {format_gpus(timings.most)} did {times:g} times the samples"
        f" in {ratio:.2f} of the time, {times / ratio:.2f} times the samples per second",
        arithmetic=(
            f"{times:g} x the samples / {ratio:.2f} of the time = {times / ratio:.2f}",
            (
                f"the same work as on {format_gpus(timings.fewest)} needs 1/{times:g} of the steps:"
                f" {timings.seconds[timings.most] / times:.1f} s, and the start-up again"
            ),
        ),
    )


def work_is_replicated(timings: Timings) -> Found | None:
    """The time does not fall with more GPUs: every process does all of the work."""
    ratios = [timings.ratio(gpus) for gpus in timings.seconds if gpus != timings.fewest]
    if timings.fixed == "steps" or not all(_FLAT_LOW <= ratio <= _FLAT_HIGH for ratio in ratios):
        return None
    unless = "" if timings.fixed else ", unless max_steps was fixed (--fixed steps)"
    each = f"1/{timings.times_the_gpus:g}"
    return Found(
        message=f"work replicated: {format_gpus(timings.most)} take {timings.seconds[timings.most]:.1f} s"
        f" where {format_gpus(timings.fewest)} took {timings.seconds[timings.fewest]:.1f} s; with the epochs fixed"
        f" each process should do {each} of the steps, so every process walks the whole data{unless}",
        arithmetic=tuple(
            f"{seconds:.1f} s / {timings.seconds[timings.fewest]:.1f} s ="
            f" {seconds / timings.seconds[timings.fewest]:.2f} on {format_gpus(gpus)}"
            for gpus, seconds in timings.seconds.items()
            if gpus != timings.fewest
        ),
    )


def more_than_possible(timings: Timings) -> Found | None:
    """The speed-up is larger than the GPUs allow: the runs did not do the same."""
    has_more = timings.fixed == "steps" and not timings.global_batch
    times = timings.times_the_gpus
    gain = (times if has_more else 1) / timings.ratio(timings.most)
    if gain <= times * _IMPOSSIBLE:
        return None
    speed, cause = "as fast", "the runs did not do the same work"
    if has_more:
        speed, cause = "the samples per second", f"the steps were not fixed, or {cause}"
    return Found(
        message=f"{gain:.2f} times {speed} on {times:g} times the GPUs: {cause}",
        arithmetic=(f"{gain:.2f} > {times:g}",),
    )


def it_scales(timings: Timings) -> Found | None:
    """More GPUs bring nearly what they can."""
    efficiency = timings.speed_up / timings.times_the_gpus
    if timings.fixed == "steps" or efficiency < _GOOD:
        return None
    return Found(
        message=f"it scales: {timings.speed_up:.2f} times as fast on {timings.times_the_gpus:g} times the GPUs,"
        f" {format_fraction(efficiency)} of the ideal",
        arithmetic=(f"{timings.speed_up:.2f} / {timings.times_the_gpus:g} = {efficiency:.2f}",),
    )


def start_up_dominates(timings: Timings) -> Found | None:
    """Start-up does not shrink with the GPUs, and is a large part of so short a run."""
    at_most = fixed_seconds(timings)
    at_least = min(at_most, fixed_seconds(timings, COSTLIER_STEP))
    slowest = timings.seconds[timings.most]
    is_believed = at_most <= LONGEST_START_SECONDS or timings.start_up_seconds is not None
    if timings.fixed == "steps" or at_least < _NOTABLE_START * slowest or not is_believed:
        return None
    if timings.speed_up <= 1 or prefers_costlier_steps(timings):
        return None
    whole = timings.seconds[timings.fewest]
    return Found(
        message=f"fixed start-up: {_between(at_least, at_most)} s of the {slowest:.1f} s on"
        f" {format_gpus(timings.most)} do not shrink; the loop itself"
        f" falls from {_between(whole - at_most, whole - at_least)} s to"
        f" {_between(slowest - at_most, slowest - at_least)} s{_otherwise(timings)}",
        arithmetic=_start_up_arithmetic(timings, at_least, at_most),
        ceiling=whole / at_least if at_least else None,
    )


def _otherwise(timings: Timings) -> str:
    if timings.start_up_seconds is not None:
        return ""
    return (
        f" (or, were there no start-up, a step costs {timings.step_growth:.2f} times as much on"
        f" {format_gpus(timings.most)}: --start-up-seconds, the time to the first step, tells)"
    )


def _start_up_arithmetic(timings: Timings, at_least: float, at_most: float) -> tuple[str, ...]:
    whole, times = timings.seconds[timings.fewest], timings.times_the_gpus
    if timings.start_up_seconds is not None:
        first = f"measured start-up {at_most:.1f} s"
    else:
        first = (
            f"T(n) = a + b x {timings.fewest}/n: a = {at_most:.1f} s, b = {whole - at_most:.1f} s;"
            f" a = {at_least:.1f} s if a step on more GPUs takes {COSTLIER_STEP:g} times as long"
        )
    return (
        first,
        (
            f"best speed-up {whole:.1f} s / {_between(at_least, at_most)} s ="
            f" {_between(whole / at_most, whole / (at_least or at_most), digits=2)};"
            f" {timings.speed_up:.2f} now on {times:g} times the GPUs"
        ),
    )


def start_up_or_exchanges(timings: Timings) -> Found | None:
    """A start-up, or steps that take longer on several GPUs: two times cannot tell which."""
    if timings.start_up_seconds is not None or timings.fixed == "steps" or timings.speed_up <= 1:
        return None
    at_most, slowest = fixed_seconds(timings), timings.seconds[timings.most]
    is_start_up = _NOTABLE_START * slowest <= at_most <= LONGEST_START_SECONDS
    if not is_start_up or prefers_costlier_steps(timings):
        return None
    whole = timings.seconds[timings.fewest]
    return Found(
        message=f"start-up or exchanges: {timings.speed_up:.2f} times as fast on {timings.times_the_gpus:g} times the"
        f" GPUs is {at_most:.1f} s that do not shrink, or steps that take {timings.step_growth:.2f} times as"
        f" long on {format_gpus(timings.most)}, or some of both",
        arithmetic=(
            f"T(n) = a + b x {timings.fewest}/n: a = {at_most:.1f} s, b = {whole - at_most:.1f} s",
            (
                f"growth of a step: {timings.times_the_gpus:g} x {slowest:.1f} s / {whole:.1f} s ="
                f" {timings.step_growth:.2f}"
            ),
        ),
    )


def network_dominates(timings: Timings) -> Found | None:
    """Above the GPUs of one node a step takes much longer: the network between the nodes is what is new."""
    inside = [gpus for gpus in timings.seconds if gpus <= _OF_A_NODE]
    beyond = [gpus for gpus in timings.seconds if gpus > _OF_A_NODE]
    if not inside or not beyond:
        return None
    few, many = max(inside), min(beyond)
    times = 1 if timings.fixed == "steps" else many / few
    growth = times * timings.loop_seconds(many) / timings.loop_seconds(few)
    if growth * _GOOD <= 1 or growth < timings.step_growth_until(few):
        return None
    shown = "" if times == 1 else f"{times:g} x "
    seconds = f"{timings.loop_seconds(many):.1f} s / {timings.loop_seconds(few):.1f} s"
    return Found(
        message=f"the network: a step costs {growth:.2f} times as much on {format_gpus(many)} as on {format_gpus(few)},"
        f" and nodes mostly have {_OF_A_NODE} or fewer: what is new is the way between nodes",
        arithmetic=(f"growth of a step: {shown}{seconds} = {growth:.2f}",),
    )


def communication_dominates(timings: Timings) -> Found | None:
    """A step takes much longer on several GPUs than on one: they wait for each other."""
    growth = timings.step_growth
    if growth * _GOOD <= 1:
        return None
    most, fewest = timings.most, timings.fewest
    slower = timings.seconds[most] > timings.seconds[fewest] and timings.fixed != "steps"
    head = "more GPUs are slower" if slower else "communication-bound"
    times = "" if timings.fixed == "steps" else f"{timings.times_the_gpus:g} x "
    how = f"{times}{timings.loop_seconds(most):.1f} s / {timings.loop_seconds(fewest):.1f} s"
    unknown = (
        ""
        if timings.start_up_seconds is not None
        else ", if start-up is little of it (--start-up-seconds says)"
    )
    return Found(
        message=f"{head}: a step costs {growth:.2f} times as much on {format_gpus(most)} as on {format_gpus(fewest)}{unknown};"
        f" {format_fraction(1 - 1 / growth)} of it is waiting",
        arithmetic=(f"growth of a step: {how} = {growth:.2f}",),
    )


RULES: tuple[tuple[str, Callable[[Timings], Found | None]], ...] = (
    ("TIM001", input_is_slow),
    ("TIM002", steps_are_fixed),
    ("TIM003", work_is_replicated),
    ("TIM004", more_than_possible),
    ("TIM005", it_scales),
    ("TIM006", start_up_dominates),
    ("TIM008", start_up_or_exchanges),
    ("TIM009", network_dominates),
    ("TIM007", communication_dominates),
)
"""In the order they are asked; the first that finds something is the diagnosis."""


def _between(low: float, high: float, digits: int = 1) -> str:
    shown = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return shown[0] if shown[0] == shown[1] else f"{shown[0]}-{shown[1]}"
