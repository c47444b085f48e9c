"""Until when somebody waits for an answer: work that is long stops by then, while what it has is still of use."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf, isfinite
from time import monotonic

_ENDS: ContextVar[float] = ContextVar("ends", default=inf)
_ALLOWED: ContextVar[float] = ContextVar("allowed", default=inf)
_IS_LEFT: ContextVar[Callable[[], bool] | None] = ContextVar("is_left", default=None)
_WHAT_NEEDS_LESS = "ask for fewer GPUs, name fields of the strategy"


@contextmanager
def until(
    ends: float, allowed_seconds: float, is_left: Callable[[], bool] | None = None
) -> Iterator[None]:
    """Give what is done within until then, on the clock of `time.monotonic`, which processes of one machine share.

    Args:
        ends: when nobody waits any more.
        allowed_seconds: for the whole answer, waiting included; messages say it.
        is_left: says whether nobody waits any more already.
    """
    before, told, asked = _ENDS.set(ends), _ALLOWED.set(allowed_seconds), _IS_LEFT.set(is_left)
    try:
        yield
    finally:
        _IS_LEFT.reset(asked)
        _ALLOWED.reset(told)
        _ENDS.reset(before)


@contextmanager
def sooner(seconds: float, *, most_share: float = 1.0) -> Iterator[None]:
    """Keep so many seconds for what comes after, at most that share of all that were allowed."""
    kept = min(seconds, most_share * _ALLOWED.get())
    before = _ENDS.set(_ENDS.get() - kept)
    try:
        yield
    finally:
        _ENDS.reset(before)


def is_over() -> bool:
    """Return whether there is no time left, or nobody who waits; without a deadline there always is."""
    is_left = _IS_LEFT.get()
    return monotonic() > _ENDS.get() or (is_left is not None and is_left())


def no_answer(found: str = "") -> str:
    """Return what is said when there is no time left.

    Args:
        found: what was looked at until then.
    """
    return no_answer_within(_ALLOWED.get(), found)


def no_answer_within(seconds: float, found: str = "") -> str:
    """Return that these seconds were over, and what was found until then."""
    within = f"no answer within {seconds:g} s" if isfinite(seconds) else "no answer in time"
    return f"{within}: {found}" if found else within


def with_less(less: str = _WHAT_NEEDS_LESS) -> str:
    """Return what to do where there was no time: to ask for what needs less, or where there is no limit."""
    return f"{less}, or use the command line, which has no such limit"
