"""Until when somebody waits for an answer: work that is long stops by then, while what it has is still of use."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from time import monotonic

_ENDS: ContextVar[float] = ContextVar("ends", default=inf)


@contextmanager
def until(ends: float) -> Iterator[None]:
    """Give what is done within until then, on the clock of `time.monotonic`, which processes of one machine share."""
    before = _ENDS.set(ends)
    try:
        yield
    finally:
        _ENDS.reset(before)


@contextmanager
def sooner(seconds: float) -> Iterator[None]:
    """Keep so many seconds of what is left for what comes after."""
    with until(_ENDS.get() - seconds):
        yield


def is_over() -> bool:
    """Return whether there is no time left; without a deadline there always is."""
    return monotonic() > _ENDS.get()
