"""What a training log says of its steps, gathered line by line: times, memory, the layout."""

import math
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from planner.calibrate.logs.per_step import PerStep
from planner.core.frozen import frozen
from planner.core.units import format_percent, format_steps

Unit = Literal["seconds", "tokens/s", "tokens/s per GPU", "samples/s"]

LONGEST_STEP = 86_400.0
"""Seconds; a step that takes longer than a day is a broken line."""
SHORTEST_STEP = 1e-6
LARGEST_RATE = 1e13
"""Tokens per second: beyond all the GPUs there are."""
LARGEST_MEMORY = 2.0**50
_SUFFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_WARM = 1.2
"""Times the steady step: a first step that takes longer is one of the warm-up."""
_FEWEST = 3
"""Steps from which a warm-up can be told, or that a run began again."""
SAME_RUN = 0.05
"""By which the speed of two parts of one run may differ."""
_STALLED = 2.0
"""Times the steady step: what takes longer is no step of training alone."""
_TELLING = 0.05
"""Of all time, from which stalls are said."""

NUMBER = r"([-+]?(?:nan|inf|\d[\d,]{0,40}(?:\.\d{0,40})?(?:e[-+]?\d{1,4})?)[KMBT]?)"
"""A number as a log writes it, to be read by `number`; bounded, so that no line takes long to search."""


_THOUSANDS = re.compile(
    r"[-+]?\d{1,3}(?:,\d{3}){1,13}(?:\.\d{0,40})?(?:e[-+]?\d{1,4})?", re.IGNORECASE
)


def numbered(before: str, after: str = "") -> re.Pattern[str]:
    """Return the pattern of a number between two others; the first is searched as it stands, which is fast."""
    return re.compile(f"{before}(?i:{NUMBER}){after}")


def number(text: str, low: float = 0.0, high: float = math.inf) -> float | None:
    """Return a number as logs write it (1,234 or 1.23K), None outside of low < number <= high.

    A comma parts thousands: 12,5 with a decimal comma is no number here, and not 125.
    """
    suffix = text[-1:].upper() if text[-1:].isalpha() else ""
    digits = text[: len(text) - len(suffix)].rstrip(",")
    if "," in digits:
        digits = digits.replace(",", "") if _THOUSANDS.fullmatch(digits) else ""
    try:
        value = float(digits) * _SUFFIXES[suffix]
    except (ValueError, KeyError):
        return None
    return value if math.isfinite(value) and low < value <= high else None


def count(text: str) -> int | None:
    """Return a whole number of at most 2^40 from 1 on."""
    value = number(text, 0, 2.0**40)
    return int(value) if value is not None and value == int(value) else None


def flag(text: str) -> bool | None:
    """Return a yes or no as Python prints it."""
    return {"true": True, "false": False}.get(text.strip().lower())


@dataclass(slots=True, kw_only=True)
class StepLog:
    """A run as its log tells it, filled while the log is read."""

    kind: str
    unit: Unit = "seconds"
    values: dict[int, float] = field(default_factory=dict)
    """By step; where several ranks say one, the slowest."""
    said: dict[str, Any] = field(default_factory=dict)
    """Fields of an estimate request, by path: recipe.global_batch_size."""
    supposed: dict[str, Any] = field(default_factory=dict)
    """Fields that follow from what it says, where the layout leaves them open."""
    none_of: list[str] = field(default_factory=list)
    """Fields that its run does not have."""
    model_sizes: dict[str, int] = field(default_factory=dict)
    """Of the model, by the log's names."""
    world_size: int | None = None
    data_ranks: int | None = None
    """Ranks by a log that counts those of data parallelism, where it is told of others."""
    tokens_per_step: int | None = None
    per_step: tuple[PerStep, ...] = ()
    """What its steps train on, as their own lines say it."""
    peak_bytes: float | None = None
    reserved_bytes: float | None = None
    planned_rate: float | None = None
    """Tokens per second that the planner's script says its plan has."""
    device: str = ""
    """What the ranks ran on, where the log says it; "cpu" for CPUs."""
    understood: set[str] = field(default_factory=set)
    """Lines."""
    damaged: list[str] = field(default_factory=list)
    """Lines that are this kind's, and whose figures cannot be used."""
    notes: list[str] = field(default_factory=list)
    is_mean: bool = False
    """Whether the values are means over the run, its warm-up included."""
    is_of_stretches: bool = False
    """Whether the values are means over stretches of a progress bar, each some steps."""
    accumulates: bool | None = False
    """Whether what is timed is a micro-batch, of which a step has several; None where that is not known."""
    earlier: list[dict[int, float]] = field(default_factory=list)
    """Values from before the steps began again."""
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=_FEWEST))
    """The last steps that were told."""

    def step(self, step: int, text: str, line: str, scale: float = 1.0) -> None:
        """Take one step's figure; one that cannot be is named."""
        is_seconds = self.unit == "seconds"
        low, high = (SHORTEST_STEP, LONGEST_STEP) if is_seconds else (0.0, LARGEST_RATE)
        value = number(text)
        scaled = None if value is None else value * scale
        if scaled is None or not low < scaled <= high:
            self.damaged.append(line)
            return
        self._look_back(step)
        self.values[step] = self._slowest(scaled, self.values.get(step, scaled))
        self.understood.add(line)

    @property
    def counted(self) -> str:
        """What each value is of, as several."""
        return "stretches of the bar" if self.is_of_stretches else "steps"

    def _slowest(self, one: float, other: float) -> float:
        return max(one, other) if self.unit == "seconds" else min(one, other)

    def _look_back(self, step: int) -> None:
        """Begin anew at a step that lies before the last three: ranks that take turns are not as far apart."""
        if len(self.recent) == _FEWEST and step < min(self.recent):
            self.earlier.append(self.values)
            self.values = {}
            self.recent.clear()
        if step not in self.recent:
            self.recent.append(step)

    def settle(self) -> None:
        """Join what is of one run, where steps began again: another rank, a run that went on. Of several runs keep the last.

        Runs are told by their speed, so a run that was started again as it was is one with itself.
        """
        parts = [each for each in (*self.earlier, self.values) if each]
        self.earlier = []
        long = [each for each in parts if len(each) >= _FEWEST] or parts[-1:]
        kept = dict(long[-1]) if long else {}
        dropped = 0
        for part in long[:-1]:
            if abs(_pace(part) / _pace(kept) - 1) > SAME_RUN:
                dropped += len(part)
                continue
            for step, value in part.items():
                kept[step] = self._slowest(value, kept.get(step, value))
        self.values = kept
        if dropped:
            self.notes.append(of_an_earlier_run(dropped))

    def say(self, path: str, value: Any, line: str) -> None:
        """Take a field of the layout; where another run begins, what came before is left out."""
        if value is None:
            self.damaged.append(line)
            return
        self.understood.add(line)
        if path.startswith("model."):
            self.model_sizes[path.removeprefix("model.")] = value
            return
        if path == "data_ranks":
            self.data_ranks = value
            return
        before = self.world_size if path == "world_size" else self.said.get(path)
        if before is not None and before != value and self.values:
            self.notes.append(f"{len(self.values)} steps of an earlier run in it are left out")
            self.values.clear()
            self.earlier.clear()
            self.recent.clear()
            self.peak_bytes = self.reserved_bytes = None
        if path == "world_size":
            self.world_size = value
        else:
            self.said[path] = value

    def memory(self, line: str, peak: float | None = None, reserved: float | None = None) -> None:
        """Take a rank's memory in bytes: the fullest counts."""
        for name, amount in (("peak_bytes", peak), ("reserved_bytes", reserved)):
            if amount is None:
                continue
            if not 0 < amount <= LARGEST_MEMORY:
                self.damaged.append(line)
                continue
            setattr(self, name, max(amount, getattr(self, name) or 0.0))
            self.understood.add(line)


@frozen
class Steady:
    """The steps of a run after its warm-up."""

    value: float
    """The median."""
    spread: float
    """Half of what the middle half of the steps spans, as a fraction of the median."""
    steps: int
    left_out: int
    """First steps: compiling, allocating, filling caches."""
    stalled: int = 0
    """Steps that took more than twice the median: evaluations, checkpoints, data."""
    lost: float = 0.0
    """Of the time of all steps, what those took beyond the median."""

    def said(self, of: str = "steps") -> tuple[str, ...]:
        """Return what the median leaves out, where it is enough to tell."""
        if self.lost < _TELLING:
            return ()
        took = f"{self.stalled} of {self.steps:,} {of} took more than twice as long"
        share = (
            f"{format_percent(self.lost)} of all time (evaluations, checkpoints, waiting for data?)"
        )
        return (f"{took}, {share}: the median leaves that out",)


def steady(values: Sequence[float], *, is_seconds: bool = True) -> Steady:
    """Return the median of the steady steps.

    left out: the first step of two or more, and every further one up to the half that takes
        more than 1.2 times the median of the second half
    """
    left_out = 0
    if len(values) > 1:
        settled = median(values[len(values) // 2 :])
        first = list(_slower(values[: len(values) // 2], settled, is_seconds=is_seconds))
        left_out = max(1, next((i for i, is_slow in enumerate(first) if not is_slow), len(first)))
    kept = sorted(values[left_out:])
    middle = median(kept)
    quarter = len(kept) // 4
    spread = (kept[-1 - quarter] - kept[quarter]) / 2 / middle
    times = kept if is_seconds else [1 / value for value in kept]
    steady_time = median(times)
    slow = [time for time in times if time > _STALLED * steady_time]
    return Steady(
        value=middle,
        spread=spread,
        steps=len(kept),
        left_out=left_out,
        stalled=len(slow),
        lost=(sum(slow) - len(slow) * steady_time) / sum(times),
    )


def of_an_earlier_run(steps: int) -> str:
    """Return what is said of steps before those of the last run."""
    return f"its steps begin again at another speed: {format_steps(steps)} of an earlier run are left out"


def _pace(values: Mapping[int, float]) -> float:
    return median(values.values())


def _slower(values: Sequence[float], settled: float, *, is_seconds: bool) -> Iterator[bool]:
    for value in values:
        yield value > _WARM * settled if is_seconds else value * _WARM < settled
