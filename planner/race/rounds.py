"""Plans and a budget -> what each run showed, round after round: who is known or beaten ends, the better half goes on."""

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
from planner.race.odds import Interval, better_half, interval, is_behind, is_decided
from planner.race.ways import Here, Way

KNOWN, BEHIND, OPEN = "known", "slower", "open"
FAILED, MISSING = "failed", "not installed"


@dataclass(slots=True)
class Standing:
    """What is known of one plan so far."""

    entrant: Entrant
    seconds: list[float] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    state: str = OPEN
    why: str = ""
    held_bytes: float = 0.0
    """Of a GPU's memory, where that ran out."""

    @property
    def step(self) -> Interval | None:
        """Return its median step; None where it took none, or failed."""
        return interval(self.seconds) if self.seconds and self.state != FAILED else None


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
    """Share what is left of the budget among the plans that are open; the better half goes on to the next round."""
    alive = [each for each in every if each.state == OPEN]
    for left in range(math.ceil(math.log2(len(alive) or 1)) + 1, 0, -1):
        for number, each in enumerate(alive):
            share = (end - time.monotonic()) / (len(alive) - number)
            if share > 0:
                end += _run(each, every, share, share / left, race)
        alive = [each for each in alive if each.state == OPEN and not _is_decided(each, every)]
        names = better_half({str(place): each.seconds for place, each in enumerate(alive)})
        alive = [alive[int(name)] for name in names]
    for each in every:
        if each.state == OPEN and not each.readings:
            each.why = "not run: no time was left"


def _run(
    standing: Standing, every: Sequence[Standing], start: float, share: float, race: Race
) -> float:
    """Run one plan: so long until its first step, and then for its share of the time; say how it stands.

    Returns the seconds that it waited to begin.
    """
    best = _best_high(every, standing)
    before, standing.why = tuple(standing.seconds), ""

    def is_enough(seconds: Sequence[float]) -> bool:
        together = [*before, *seconds]
        race.show(standing, together)
        return is_decided(together, best)

    limits = Limits(start_seconds=start, seconds=share, step_seconds=race.patience_seconds)
    heat = run_once(
        standing.entrant, limits, is_enough, race.way, lambda why: race.waits(standing, why)
    )
    standing.seconds += heat.seconds
    standing.readings += [heat.reading] if heat.reading else []
    if heat.why:
        standing.state, standing.why, standing.held_bytes = FAILED, heat.why, heat.held_bytes
    elif standing.step and standing.step.is_known:
        standing.state = KNOWN
    elif heat.reading and not standing.seconds and not heat.is_stopped:
        standing.why = "no time was left after its warm-up"
    for each in every:
        if each.step and is_behind(each.seconds, _best_high(every, each)):
            each.state = BEHIND
    if heat.is_stopped:
        raise KeyboardInterrupt
    return heat.waited_seconds


def _is_decided(standing: Standing, every: Sequence[Standing]) -> bool:
    return is_decided(standing.seconds, _best_high(every, standing))


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
