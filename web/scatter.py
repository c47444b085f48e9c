"""Layouts as points of memory against step time.

Across is the memory of a GPU up to its own, or of those that need little of it up to theirs, upwards the step on a logarithmic scale: layouts
differ by factors. A point is a link to its layout, and its letter stands beside its name below the picture; its cross
is the likely range of both figures.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from markupsafe import Markup

from planner.core.units import GIB, format_bytes, format_gpus, format_seconds
from planner.search.candidate import Candidate
from web.drawing import (
    Scale,
    factors_around,
    factors_upwards,
    figures_across,
    percent,
    picture,
    shape,
    text,
)

_HEIGHT = 176
_TOP, _BOTTOM = 14, 148
"""Between which points lie; the axis of memory is below."""
_LEFT_PERCENT, _RIGHT_PERCENT = 10.0, 97.0
_NEAR = 2.0
"""From the limit: what needs less than a half of it lies in a heap at the left of a picture that has both."""
_ROOM = 1.1
"""Right of the last point, where the limit is not in the picture."""
_RADIUS, _TOUCH = 9, 12
"""Of a point, and of what a finger meets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One layout, and where a click on it leads."""

    candidate: Candidate
    gpus: int
    href: str
    """"" for the layout of this page, and for what no question asks for."""
    is_chosen: bool = False

    @property
    def memory(self) -> str:
        """Return what a GPU holds, which tells it from points of the same family."""
        return format_bytes(self.candidate.memory.reserved_bytes)

    @property
    def title(self) -> str:
        """Return what the point is, in words."""
        step = format_seconds(self.candidate.step_time.step_seconds)
        family = self.candidate.strategy.family
        return f"{family} on {format_gpus(self.gpus)}: {self.memory}, {step}"


def beaten_by(candidate: Candidate, chosen: Candidate) -> bool:
    """Return whether a layout is both faster and smaller than the choice."""
    memory, step = candidate.memory.reserved_bytes, candidate.step_time.step_seconds
    return bool(memory < chosen.memory.reserved_bytes and step < chosen.step_time.step_seconds)


def lettered(points: Iterable[Point]) -> tuple[tuple[str, Point], ...]:
    """Return each point under a letter, the fastest first."""
    by_step = sorted(points, key=lambda point: float(point.candidate.step_time.step_seconds))
    return tuple(zip(ascii_uppercase, by_step, strict=False))


def draw_scatter(points: Sequence[Point], *, card_bytes: float, usable_bytes: float) -> Markup:
    """Return the picture.

    Args:
        points: at least one.
        card_bytes: memory of a GPU.
        usable_bytes: what a process can take of it, drawn as the limit.
    """
    times = [point.candidate.step_time for point in points]
    reach = max(float(point.candidate.memory.high_bytes) for point in points)
    is_near = usable_bytes < _NEAR * reach
    across = Scale(
        most=card_bytes if is_near else _ROOM * reach, start=_LEFT_PERCENT, end=_RIGHT_PERCENT
    )
    least, most = factors_around(
        min(float(step.low_seconds) for step in times),
        max(float(step.high_seconds) for step in times),
    )
    upwards = Scale(
        least=least,
        most=most,
        start=_BOTTOM,
        end=_TOP,
        is_of_factors=True,
    )
    left, right = percent(_LEFT_PERCENT), percent(_RIGHT_PERCENT)
    limit = across.percent(usable_bytes) if is_near else right
    said = f"{format_bytes(usable_bytes)} usable{'' if is_near else ', further right'}"
    return picture(
        "scatter",
        f"{len(points)} layouts by memory of a GPU and step time",
        _HEIGHT,
        shape("line", css="axis", x1=left, x2=right, y1=_BOTTOM, y2=_BOTTOM),
        *figures_across(across, GIB, "GiB", _BOTTOM + 14),
        *factors_upwards(upwards, 1.0, format_seconds),
        *([shape("line", css="limit", x1=limit, x2=limit, y1=_TOP, y2=_BOTTOM)] if is_near else []),
        text(said, limit, _TOP - 8, "limit end"),
        # The chosen point last, so that none hides it.
        *(
            _draw(letter, point, across, upwards)
            for letter, point in sorted(lettered(points), key=lambda each: each[1].is_chosen)
        ),
        role="group",
    )


def _draw(letter: str, point: Point, across: Scale, upwards: Scale) -> Markup:
    memory, step = point.candidate.memory, point.candidate.step_time
    low, x, high = (
        across.percent(float(each))
        for each in (memory.low_bytes, memory.reserved_bytes, memory.high_bytes)
    )
    fast, y, slow = (
        upwards.at(float(each)) for each in (step.low_seconds, step.step_seconds, step.high_seconds)
    )
    mark = shape("circle", shape("title", point.title), cx=x, cy=y, r=_RADIUS) + text(letter, x, y)
    if point.href:
        touched = shape("circle", css="touch", cx=x, cy=y, r=_TOUCH)
        mark = shape(
            "a",
            touched + mark,
            fx_action="",
            href=point.href,
            aria_label=f"{letter}: {point.title}",
        )
    return shape(
        "g",
        shape("line", x1=low, x2=high, y1=y, y2=y),
        shape("line", x1=x, x2=x, y1=slow, y2=fast),
        mark,
        css="point chosen" if point.is_chosen else "point",
    )
