"""Seconds of work on a device, sustained; and the time that a run of the program may still take."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

MOST_CALLS = 20_000
"""Back to back, of one measurement."""
_WARM_UPS = 2
_BAR = 20
"""Characters of the bar of progress."""


class Clock:
    """Times calls on one device, which may be asynchronous."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def wait(self) -> None:
        """Return when the device has done all it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def seconds(self, call: Callable[[], object], calls: int) -> float:
        """Return the mean seconds of calls that follow each other without a pause."""
        self.wait()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        self.wait()
        return (time.perf_counter() - start) / calls

    def sustained(self, call: Callable[[], object], seconds: float) -> float:
        """Return the mean seconds of as many calls as fill a duration, warmed up before."""
        once = min(self.seconds(call, 1) for _ in range(_WARM_UPS))
        return self.seconds(call, calls_for(once, seconds))


def calls_for(once_seconds: float, seconds: float) -> int:
    """Return how many calls fill a duration, one at least."""
    return max(1, min(MOST_CALLS, math.ceil(seconds / max(once_seconds, 1e-7))))


class Budget:
    """Deals the seconds of a run out: what one kind of measurement leaves goes to the next ones."""

    def __init__(self, seconds: float, *, is_shown: bool) -> None:
        self.seconds = seconds
        self.end = time.monotonic() + seconds
        self.is_shown = is_shown
        self.deadline = self.end
        self.left_out: list[str] = []

    def left(self) -> float:
        """Return the seconds until the present kind of measurement should end."""
        return self.deadline - time.monotonic()

    def open(self, share: float) -> None:
        """Begin a kind of measurement, that gets a share of all the time that is left."""
        now = time.monotonic()
        self.deadline = now + share * max(0.0, self.end - now)

    def omit(self, what: str) -> None:
        """Note what was not measured, and why."""
        self.left_out.append(what)
        if self.is_shown:
            _show(f"left out: {what}", is_lasting=True)

    def show(self, text: str) -> None:
        """Say where the run is, on stderr."""
        if self.is_shown:
            remaining = max(0.0, self.end - time.monotonic())
            bar = _bar(1 - remaining / max(self.seconds, 1e-9))
            _show(f"{bar} {text}; at most {remaining:.0f} s to go", is_lasting=False)

    def say(self, text: str) -> None:
        """Say on stderr what is done."""
        if self.is_shown:
            _show(text, is_lasting=True)

    @contextmanager
    def trying(self, what: str) -> Iterator[None]:
        """Leave out what the device cannot do: too large for its memory, or not written for it."""
        try:
            yield
        except (RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0][:80]
            self.omit(f"{what}: {reason}")
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def _bar(share: float) -> str:
    done = min(_BAR, round(share * _BAR))
    return f"[{'#' * done}{'.' * (_BAR - done)}]"


def _show(text: str, *, is_lasting: bool) -> None:
    """Print progress: on a terminal a line that the next one replaces."""
    is_terminal = sys.stderr.isatty()
    end = "" if is_terminal and not is_lasting else "\n"
    sys.stderr.write(f"\r\x1b[K{text[:100]}{end}" if is_terminal else f"{text}\n")
    sys.stderr.flush()
