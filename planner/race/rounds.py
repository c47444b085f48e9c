"""Plans and a budget -> what each run showed, round after round: who is known or beaten ends, who may win goes on."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from planner.calibrate.logs.reading import Reading
from planner.core.frozen import frozen
from planner.race.entrants import Entrant
from planner.race.heat import Limits, run_once
from planner.race.odds import (
    MOST_STARTS,
    STARTS_APART,
    Interval,
    better_half,
    interval,
    interval_of_starts,
    is_behind,
    is_decided,
    is_within_starts,
)
from planner.race.ways import Here, Way

KNOWN, BEHIND, OPEN = "known", "slower", "open"
FAILED, MISSING = "failed", "not installed"
_SPARE = 1.5
"""Times what a plan's start took, that have to be left for another one."""


@dataclass(slots=True)
class Standing:
    """What is known of one plan so far."""

    entrant: Entrant
    starts: list[Sequence[float]] = field(default_factory=list)
    """The seconds of each step, of each start that took one after its warm-up."""
    readings: list[Reading] = field(default_factory=list)
    state: str = OPEN
    why: str = ""
    held_bytes: float = 0.0
    """Of a GPU's memory, where that ran out."""
    start_seconds: float = 0.0
    """That the longest of its starts took, the warm-up included."""

    @property
    def seconds(self) -> Sequence[float]:
        """Return what each step took, of all its starts."""
        return [each for start in self.starts for each in start]

    @property
    def step(self) -> Interval | None:
        """Return its median step; None where it took none, or failed."""
        return interval_of_starts(self.starts) if self.starts and self.state != FAILED else None


@frozen
class Race:
    """How plans are run."""

    budget_seconds: float
    """For all."""
    way: Way = Here()
    """They are started in."""
    patience_seconds: float = 60.0
    """Without a step, once there was one."""
    show: Callable[[Standing, Sequence[float]], None] = lambda _standing, _seconds: None
    """Handed each plan as its steps come."""
    waits: Callable[[Standing, str], None] = lambda _standing, _why: None
    """Handed each plan that cannot begin yet, and why."""


def run_all(entrants: Sequence[Entrant], race: Race) -> tuple[tuple[Standing, ...], bool]:
    """Run plans until the fastest is known or the budget is spent; return how they stand, and whether it was stopped.

    Those that may run out of memory go first, which is known at once, and then by planned time: beside the fastest
    the others need few steps.
    """
    every = [Standing(entrant=each) for each in sorted(entrants, key=_turn)]
    for each in every:
        if each.entrant.missing:
            each.state, each.why = MISSING, f"needs {', '.join(each.entrant.missing)}"
    try:
        with _ended_by_signals():
            _rounds(every, time.monotonic() + race.budget_seconds, race)
    except KeyboardInterrupt:
        return tuple(every), True
    return tuple(every), False


def _turn(entrant: Entrant) -> tuple[float, float]:
    planned = entrant.planned
    is_at_risk = planned.reserved_bytes.high > planned.usable_bytes
    return -planned.reserved_bytes.high if is_at_risk else 0.0, planned.step_seconds.likely


def _rounds(every: Sequence[Standing], end: float, race: Race) -> None:
    """Share what is left of the budget among the plans that may win; see `_next_round`."""
    alive = [each for each in every if each.state == OPEN]
    most = max(MOST_STARTS, math.ceil(math.log2(len(alive))) + 1) if len(alive) > 1 else 1
    for left in range(most, 0, -1):
        for number, each in enumerate(alive):
            share = (end - time.monotonic()) / (len(alive) - number)
            if share > _SPARE * each.start_seconds:
                end += _run(each, every, share, share / left, race)
        alive = _next_round(alive, every, on_cpus=race.way.on_cpus)
    for each in every:
        if each.state == OPEN and not each.readings:
            each.why = "not run: no time was left"


def _next_round(
    alive: Sequence[Standing], every: Sequence[Standing], *, on_cpus: bool
) -> list[Standing]:
    """Return who goes on: the better half of those that more steps decide, and those that another start may turn round."""
    close = [each for each in alive if _is_close(each, every, on_cpus=on_cpus)]
    left = [
        each
        for each in alive
        if each.state == OPEN and not _is_enough(each.seconds, each, every, on_cpus=on_cpus)
    ]
    half = better_half({str(place): each.seconds for place, each in enumerate(left)})
    kept = {id(left[int(place)]) for place in half}
    kept |= {id(each) for each in close if len(close) > 1}
    return [each for each in alive if id(each) in kept]


def _is_close(standing: Standing, every: Sequence[Standing], *, on_cpus: bool) -> bool:
    """Return whether another start may make a plan the fastest, which the fastest itself is."""
    if standing.step is None:
        return False
    best = min(each.step.median for each in every if each.step)
    return is_within_starts(standing.step.median, best, len(standing.starts), on_cpus=on_cpus)


def _run(
    standing: Standing, every: Sequence[Standing], start: float, share: float, race: Race
) -> float:
    """Run one plan: so long until its first step, and then for its share of the time; say how it stands.

    Returns the seconds that it waited to begin.
    """
    before, standing.why = standing.seconds, ""

    def is_enough(seconds: Sequence[float]) -> bool:
        together = [*before, *seconds]
        race.show(standing, together)
        counted = seconds if race.way.on_cpus else together
        return _is_enough(counted, standing, every, on_cpus=race.way.on_cpus)

    limits = Limits(start_seconds=start, seconds=share, step_seconds=race.patience_seconds)
    begun = time.monotonic()
    heat = run_once(
        standing.entrant, limits, is_enough, race.way, lambda why: race.waits(standing, why)
    )
    warm = time.monotonic() - begun - heat.waited_seconds - sum(heat.seconds)
    standing.start_seconds = max(standing.start_seconds, warm)
    standing.starts += [heat.seconds] if heat.seconds else []
    standing.readings += [heat.reading] if heat.reading else []
    if heat.why:
        standing.state, standing.why, standing.held_bytes = FAILED, heat.why, heat.held_bytes
    elif heat.reading and not standing.seconds and not heat.is_stopped:
        standing.why = "no time was left after its warm-up"
    for each in every:
        if each.step:
            each.state = _state(each, every, on_cpus=race.way.on_cpus)
    if heat.is_stopped:
        raise KeyboardInterrupt
    return heat.waited_seconds


def _state(standing: Standing, every: Sequence[Standing], *, on_cpus: bool) -> str:
    """Return how a plan stands that took steps."""
    is_close = _is_close(standing, every, on_cpus=on_cpus)
    if not is_close and is_behind(standing.seconds, _best_high(every, standing)):
        return BEHIND
    return KNOWN if interval(standing.seconds).is_known else OPEN


def _is_enough(
    seconds: Sequence[float], standing: Standing, every: Sequence[Standing], *, on_cpus: bool
) -> bool:
    """Return whether more steps settle nothing; on cores, of several plans, another start says more than they do."""
    best = _best_high(every, standing)
    if on_cpus and len(every) > 1 and seconds:
        return interval(seconds).is_within(STARTS_APART) or is_behind(seconds, best)
    return is_decided(seconds, best)


def _best_high(every: Sequence[Standing], than: Standing) -> float:
    """Return the least upper bound of a median step among the other plans."""
    return min(
        (each.step.high for each in every if each is not than and each.step), default=math.inf
    )


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Take SIGTERM as Ctrl-C, and Ctrl-C too where a shell started this in its background: what was measured is kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(each, signal.default_int_handler) for each in taken]
    try:
        yield
    finally:
        for each, handler in zip(taken, before, strict=True):
            signal.signal(each, handler)
