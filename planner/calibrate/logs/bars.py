"""Progress bars as tqdm prints them: how long the iterations took between those that a log has kept."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from planner.calibrate.logs.steps import NUMBER, SAME_RUN, StepLog, number, of_an_earlier_run

_BAR = re.compile(
    r"\b(?P<done>\d{1,9})/(?P<all>\d{1,9}) \[(?:(?P<hours>\d{1,4}):)?(?P<minutes>\d\d):(?P<seconds>\d\d)<"
    r"[^\]]{0,40}?(?:it/s|s/it)"
)
_OTHERS = re.compile(
    r"^\W{0,3}(?:Map|Filter|Flatten|Load|Download|Generat|Fetch|Token|Sav|Pack|Cast|Eval|Valid|Test|Predict|Sanity)",
    re.IGNORECASE,
)
"""What bars are called that are not of training."""
EVALUATED = re.compile(rf"'eval_runtime': '?(?P<seconds>{NUMBER})'?", re.IGNORECASE)
"""The seconds of one evaluation, as transformers' Trainer prints them."""
SHORTEST = 20
"""Seconds between two bars, which are rounded to one, from which they time the iterations between them."""
_MOST_STRETCHES = 40
_FEWEST_STRETCHES = 5
_TELLING = 3
"""Stretches from which a part of a bar says which run the log is of."""
_ROUNDED = 1
"""Seconds by which a bar's clock may be off."""


@dataclass(frozen=True, slots=True)
class Point:
    """One bar: how far it was, and when."""

    done: int
    seconds: float
    """Since the bar began, without evaluations that the log times."""
    line: str
    clock: int = 0
    """Seconds as the bar says them."""

    def is_before(self, other: "Point") -> bool:
        """Return whether a bar began again: fewer iterations, or a clock farther back than those of ranks are apart."""
        return self.done < other.done or self.clock < other.clock - SHORTEST


def training_bar(lines: Iterable[str], steps: int | None = None) -> list[list[Point]]:
    """Return the bar of training, in parts where it began again: that of so many steps, else the one that goes on longest.

    Args:
        lines: of a log.
        steps: that the run has, where it says so.
    """
    bars: dict[int, list[list[Point]]] = {}
    evaluated = 0.0
    for line in lines:
        if (done := EVALUATED.search(line)) and (seconds := number(done["seconds"])):
            evaluated += seconds
        if bar := _bar(line):
            hours, minutes, rest = (int(bar[name] or 0) for name in ("hours", "minutes", "seconds"))
            clock = (hours * 60 + minutes) * 60 + rest
            parts = bars.setdefault(int(bar["all"]), [[]])
            point = Point(int(bar["done"]), clock - evaluated, line, clock)
            if parts[-1] and point.is_before(parts[-1][-1]):
                parts.append([])
                evaluated, point = 0.0, Point(point.done, float(clock), line, clock)
            parts[-1].append(point)
    if steps in bars:
        return bars[steps]
    return max(bars.values(), key=lambda parts: sum(map(_length, parts)), default=[])


def is_of_a_bar(line: str) -> bool:
    """Return whether a line is a bar that may be of training."""
    return _bar(line) is not None


def _bar(line: str) -> re.Match[str] | None:
    return None if _OTHERS.match(line) else _BAR.search(line)


def can_be_timed(lines: Iterable[str]) -> bool:
    """Return whether some part of the bar of training goes on for long enough."""
    return any(_length(part) >= SHORTEST for part in training_bar(lines))


def _length(points: Sequence[Point]) -> float:
    return points[-1].seconds - points[0].seconds if points else 0.0


def last_run(parts: Sequence[Sequence[Point]], log: StepLog) -> list[Sequence[Point]]:
    """Return the parts of a bar that are as fast as its last: those of another speed are of an earlier run, which is said.

    An epoch of a run begins its bar again at the same speed. A last part too short to tell leaves those before it.
    """
    paces = [[seconds for seconds, _ in stretches([part]).values()] for part in parts]
    kept = max((n for n, each in enumerate(paces) if len(each) >= _TELLING), default=None)
    if kept is None:
        return list(parts)
    others = [
        part
        for part, pace in zip(parts, paces, strict=True)
        if pace and abs(median(pace) / median(paces[kept]) - 1) > _apart(part, parts[kept])
    ]
    if others:
        log.notes.append(of_an_earlier_run(sum(part[-1].done - part[0].done for part in others)))
        log.understood |= {point.line for part in others for point in part}
    return [part for part in parts if not any(part is other for other in others)]


def _apart(*parts: Sequence[Point]) -> float:
    return SAME_RUN + sum(_ROUNDED / max(_length(part), _ROUNDED) for part in parts)


def stretches(parts: Iterable[Sequence[Point]]) -> dict[int, tuple[float, str]]:
    """Return seconds of one iteration and the bar's line by the iterations so far, over stretches of 20 s or more."""
    found: dict[int, tuple[float, str]] = {}
    before = 0
    for points in parts:
        own = [point for point in points if point.done > 0]
        shortest = max(SHORTEST, _length(own) / _MOST_STRETCHES)
        first = own[0] if own else None
        for point in own:
            if first and point.done > first.done and point.seconds - first.seconds >= shortest:
                each = (point.seconds - first.seconds) / (point.done - first.done)
                found[before + point.done] = (each, point.line)
                first = point
        before += own[-1].done if own else 0
    return found


def take_stretches(parts: Sequence[Sequence[Point]], log: StepLog) -> bool:
    """Take each stretch of a bar for a step of its mean; return whether there are enough."""
    found = stretches(parts)
    if len(found) < _FEWEST_STRETCHES:
        return False
    for done, (seconds, line) in found.items():
        log.step(done, repr(seconds), line)
    log.understood |= {point.line for points in parts for point in points}
    log.is_mean, log.is_of_stretches = False, True
    return True


def take_mean(parts: Sequence[Sequence[Point]], log: StepLog) -> None:
    """Take the mean iteration between the first and the last bar."""
    log.understood |= {point.line for points in parts for point in points}
    own = [point for point in (parts[-1] if parts else ()) if point.done > 0]
    first, last = (own[0], own[-1]) if own else (Point(0, 0, ""), Point(0, 0, ""))
    if last.done <= first.done or last.seconds - first.seconds < SHORTEST:
        log.notes.append(
            "its lines of loss have no times, its end (train_runtime) is not there, and its progress bar"
            f" does not go on for {SHORTEST} s"
        )
        return
    each = (last.seconds - first.seconds) / (last.done - first.done)
    log.step(last.done, repr(each), last.line)
    log.notes.append(f"its progress bar times steps {first.done} to {last.done}")
