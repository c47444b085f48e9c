"""Layouts as points of memory against step time.

Across is the memory of a GPU up to its own, upwards the step on a logarithmic scale: layouts
differ by factors. A point is a link to its layout; its cross is the likely range of both figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from planner.core.units import GIB, format_bytes, format_gpus, format_seconds
from planner.search.candidate import Candidate
from web.drawing import Scale, factors_upwards, figures_across, percent, picture, shape, text

_HEIGHT = 196
_TOP, _BOTTOM = 14, 168
"""Between which points lie; the axis of memory is below."""
_LEFT_PERCENT, _RIGHT_PERCENT = 10.0, 97.0
_RADIUS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One layout, and where a click on it leads."""

    candidate: Candidate
    gpus: int
    href: str
    """"" for the layout of this page, and for what no question asks for."""
    is_chosen: bool = False

    @property
    def title(self) -> str:
        """Return what the point is, in words."""
        figures = (
            format_bytes(self.candidate.memory.reserved_bytes),
            format_seconds(self.candidate.step_time.step_seconds),
        )
        return f"{self.candidate.strategy.family} on {format_gpus(self.gpus)}: {', '.join(figures)}"


def beaten(points: Sequence[Point]) -> str:
    """Return which points are beaten, in words: the chosen one or none, as the others are a front."""
    chosen = next(point for point in points if point.is_chosen)
    if any(_beats(point, chosen) for point in points):
        return (
            "Points below and to the left of it are both faster and smaller on as many GPUs; among"
            " the others none is."
        )
    return "None is both faster and smaller on as many GPUs."


def _beats(one: Point, other: Point) -> bool:
    of_one, of_other = one.candidate, other.candidate
    return (
        one.gpus == other.gpus
        and bool(of_one.memory.reserved_bytes < of_other.memory.reserved_bytes)
        and bool(of_one.step_time.step_seconds < of_other.step_time.step_seconds)
    )


def draw_scatter(points: Sequence[Point], *, card_bytes: float, usable_bytes: float) -> Markup:
    """Return the picture.

    Args:
        points: at least one.
        card_bytes: memory of a GPU.
        usable_bytes: what a process can take of it, drawn as the limit.
    """
    times = [point.candidate.step_time for point in points]
    across = Scale(most=card_bytes, start=_LEFT_PERCENT, end=_RIGHT_PERCENT)
    upwards = Scale(
        least=min(float(step.low_seconds) for step in times),
        most=max(float(step.high_seconds) for step in times),
        start=_BOTTOM,
        end=_TOP,
        is_of_factors=True,
    )
    left, right, limit = (
        percent(_LEFT_PERCENT),
        percent(_RIGHT_PERCENT),
        across.percent(usable_bytes),
    )
    return picture(
        "scatter",
        f"{len(points)} layouts by memory of a GPU and step time",
        _HEIGHT,
        shape("line", css="axis", x1=left, x2=right, y1=_BOTTOM, y2=_BOTTOM),
        *figures_across(across, GIB, "GiB", _BOTTOM + 14),
        *factors_upwards(upwards, 1.0, format_seconds),
        shape("line", css="limit", x1=limit, x2=limit, y1=_TOP, y2=_BOTTOM),
        text(f"{format_bytes(usable_bytes)} usable", limit, _TOP - 8, "limit end"),
        # The chosen point last, so that none hides it.
        *(
            _draw(point, across, upwards)
            for point in sorted(points, key=lambda point: point.is_chosen)
        ),
        role="group",
    )


def _draw(point: Point, across: Scale, upwards: Scale) -> Markup:
    memory, step = point.candidate.memory, point.candidate.step_time
    low, x, high = (
        across.percent(float(each))
        for each in (memory.low_bytes, memory.reserved_bytes, memory.high_bytes)
    )
    fast, y, slow = (
        upwards.at(float(each)) for each in (step.low_seconds, step.step_seconds, step.high_seconds)
    )
    mark = shape("circle", shape("title", point.title), cx=x, cy=y, r=_RADIUS)
    if point.href:
        mark = shape("a", mark, fx_action="", href=point.href, aria_label=point.title)
    return shape(
        "g",
        shape("line", x1=low, x2=high, y1=y, y2=y),
        shape("line", x1=x, x2=x, y1=slow, y2=fast),
        mark,
        css="point chosen" if point.is_chosen else "point",
    )
