"""What a process of the service does: a function with its arguments in, its result or its error out.

It imports little: a process is started for each that was ended.
"""

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.core.deadline import until

PRIORITY = 5
"""Of a process that plans: 0 is the server's, and more is less."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a function returned, or raised."""

    result: Any = None
    error: Exception | None = None


def outcome_behind_the_server(
    function: Callable[..., object],
    arguments: tuple[Any, ...],
    ends: float,
    allowed_seconds: float,
    left: Path,
) -> Outcome:
    """Return what a function gives, computed where the server leaves the cores to it."""
    os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    return outcome_of(function, arguments, ends, allowed_seconds, left)


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
