"""What a process of the service does: a function with its arguments in, its result or its error out.

It imports little: a process is started for each that was ended.
"""

import ctypes
import os
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum
from importlib import import_module
from pathlib import Path
from typing import Any

from planner.core.deadline import until


class Turn(IntEnum):
    """Who has the cores first, as `nice` counts: 0 is the server's, and more is less."""

    SMALL = 5
    """Plans that take a moment."""
    USUAL = 12
    """Of other requests, and of processes that start."""
    LATER = 19
    """Of lines of batches, and of jobs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a function returned, or raised."""

    result: Any = None
    error: Exception | None = None


def begin(module: str) -> None:
    """Step behind the server for good, then import what answers need."""
    os.setpriority(os.PRIO_PROCESS, 0, Turn.SMALL)
    _in_turn(Turn.USUAL, import_module, module)


def outcome_behind_the_server(turn: Turn, *limited: Any) -> Outcome:
    """Return what a function gives, computed when it is its turn for the cores."""
    os.setpriority(os.PRIO_PROCESS, 0, Turn.SMALL)
    if turn == Turn.SMALL:
        return outcome_of(*limited)
    outcome: Outcome = _in_turn(turn, outcome_of, *limited)
    _give_back()
    return outcome


def _give_back() -> None:
    """Return to the system what a search has freed: glibc keeps as much as the largest ever took."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def _in_turn(turn: Turn, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call it in a thread that ends with it: on Linux each has a priority, and who is no root never gets a better one back."""
    lower = (os.PRIO_PROCESS, 0, turn)
    with ThreadPoolExecutor(1, initializer=os.setpriority, initargs=lower) as thread:
        return thread.submit(function, *arguments).result()


def outcome_of(
    function: Callable[..., object],
    arguments: tuple[Any, ...],
    ends: float,
    allowed_seconds: float,
    left: Path,
) -> Outcome:
    """Return what a function gives by then, with where it failed: a traceback does not leave its process.

    Where there is a file `left`, nobody waits any more.
    """
    try:
        with until(ends, allowed_seconds, left.exists):
            return Outcome(result=function(*arguments))
    except Exception as error:  # noqa: BLE001 - raised again where the answer is written
        error.add_note(traceback.format_exc())
        return Outcome(error=error)
