"""What every picture is made of, as inline SVG without script or style attributes.

A picture is drawn once, for screens of any width. One of figures follows the page: what lies across is
in percent, so that text keeps its size. One of shapes (`web.node_picture`) is scaled as a whole.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from math import ceil, floor, isclose, log, log10

from markupsafe import Markup

ROW, BAR = 22, 18
"""Pixels of a row and of the strokes in it."""

_ATTRIBUTE = Markup(' {}="{}"')
_ELEMENT = Markup("<{0}{1}>{2}</{0}>")
_EMPTY = Markup("<{}{}/>")
_EDGES_PERCENT = (4, 92)
"""Of a scale: what is written nearer to an end begins or ends at its place, or it would leave the picture."""
_STEPS = (1.0, 2.0, 5.0, 10.0)
_MANTISSAS = ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,))
"""Of the figures of an axis of factors, the densest first."""
_MOST = 5
_FACTOR = 8.0
"""From here on a range of factors has its ticks at factors, too."""
_NEAR = 1e-9
"""What rounding leaves between a figure and itself."""
_LAST_ZEROS = re.compile(r"(\.\d*?)0+(?= |$)")


def shape(name: str, *inside: str, css: str = "", **attributes: str | float) -> Markup:
    """Return an element.

    Args:
        name: of the element.
        inside: what it holds; text is escaped.
        css: its class; "" for none.
        attributes: with "_" for "-"; of numbers three decimals are written.
    """
    named = {"class": css, **attributes} if css else attributes
    written = Markup().join(
        _ATTRIBUTE.format(
            key.replace("_", "-"), value if isinstance(value, str) else f"{round(value, 3):.10g}"
        )
        for key, value in named.items()
    )
    return (
        _ELEMENT.format(name, written, Markup().join(inside))
        if inside
        else _EMPTY.format(name, written)
    )


def text(words: str | float, x: str | float, y: str | float, css: str = "") -> Markup:
    """Return a line of text around a place, or from or up to it where its class has "start" or "end"."""
    return shape("text", str(words), css=css, x=x, y=y)


def percent(share: float) -> str:
    """Return a place or a length across in percent of the width."""
    return f"{round(share, 3):g}%"


def picture(css: str, label: str, height: float, *inside: Markup, role: str = "img") -> Markup:
    """Return a picture as wide as the page.

    Args:
        css: its class.
        label: what it shows, for who does not see it; "" where something else says it.
        height: in pixels.
        inside: its shapes, of which the later cover the earlier.
        role: "group" where shapes in it lead somewhere.
    """
    said = {"role": role, "aria_label": label} if label else {"aria_hidden": "true"}
    return shape("svg", *inside, css=f"drawing {css}", width="100%", height=height, **said)


def stretched(left: float, height: float, steps: tuple[float, float], *inside: Markup) -> Markup:
    """Return shapes in steps of their own, across and downwards, that fill the picture right of a percentage."""
    return shape(
        "svg",
        *inside,
        x=percent(left),
        width=percent(100 - left),
        height=height,
        viewBox=f"0 0 {steps[0]} {steps[1]}",
        preserveAspectRatio="none",
    )


def row_middle(row: int) -> int:
    """Return where the strokes and the texts of a row lie."""
    return row * ROW + BAR // 2


def rows_picture(css: str, label: str, names: Sequence[str], *inside: Markup) -> Markup:
    """Return rows with a name before each, and room for an axis below them."""
    named = (text(name, 0, row_middle(row), "row-name start") for row, name in enumerate(names))
    return picture(f"rows {css}", label, (len(names) + 1) * ROW, *named, *inside)


def factors_around(least: float, most: float) -> tuple[float, float]:
    """Return round figures of a logarithmic axis at or beyond both ends, so that every point is within its ticks."""
    for low, high in _ranges_around(least, most):
        ticks = factor_ticks(low, high)
        if isclose(ticks[0], low) and isclose(ticks[-1], high):
            break
    return low, high


def _ranges_around(least: float, most: float) -> Iterator[tuple[float, float]]:
    """Yield the ends that an axis may have, the nearest first."""
    if least < most < _FACTOR * least:
        step = _round_step(least, most)
        low, high = step * floor(least / step), step * ceil(most / step)
        if low > 0:
            yield low, high
    for mantissas in _MANTISSAS:
        figures = _ladder(least, most, mantissas)
        low = max(each for each in figures if each <= least * (1 + _NEAR))
        yield low, min(each for each in figures if each >= most * (1 - _NEAR) and each > low)


def _ladder(least: float, most: float, mantissas: Sequence[float]) -> list[float]:
    decades = range(floor(log10(least)) - 1, ceil(log10(most)) + 2)
    return [mantissa * 10.0**decade for decade in decades for mantissa in mantissas]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From amounts to places in a picture."""

    least: float = 0.0
    most: float
    start: float = 0.0
    end: float = 100.0
    """Where the least and the most lie, in percent or pixels."""
    is_of_factors: bool = False

    def at(self, amount: float) -> float:
        """Return the place of an amount; what is beyond the scale lies at its end."""
        share = (amount - self.least) / (self.most - self.least)
        if self.is_of_factors:
            share = log(amount / self.least) / log(self.most / self.least)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def percent(self, amount: float) -> str:
        """Return the same as a place across."""
        return percent(self.at(amount))

    def ticks(self, unit: float = 1.0) -> list[float]:
        """Return a handful of round figures on the scale, in a unit."""
        figures = factor_ticks if self.is_of_factors else round_ticks
        return figures(self.least / unit, self.most / unit)

    def side(self, amount: float) -> str:
        """Return the class of a text at an amount that keeps it within the scale."""
        share = 100 * (self.at(amount) - self.start) / (self.end - self.start)
        return "start" if share < _EDGES_PERCENT[0] else "end" if share > _EDGES_PERCENT[1] else ""


def figures_across(scale: Scale, unit: float, name: str, y: float) -> Iterator[Markup]:
    """Yield the scale's figures, of which the last alone names their unit."""
    ticks = scale.ticks(unit)
    for tick in ticks:
        words = f"{tick:,g} {name}" if tick == ticks[-1] else f"{tick:,g}"
        yield _figure(scale, tick * unit, words, y)


def factors_across(
    scale: Scale, unit: float, show: Callable[[float], str], y: float
) -> Iterator[Markup]:
    """Yield the figures of a scale of factors, each with a unit of its own."""
    for tick in scale.ticks(unit):
        yield _figure(scale, tick * unit, short(show(tick * unit)), y)


def factors_upwards(scale: Scale, unit: float, show: Callable[[float], str]) -> Iterator[Markup]:
    """Yield the same at the left, of a scale in pixels."""
    for tick in scale.ticks(unit):
        yield text(short(show(tick * unit)), 0, scale.at(tick * unit), "tick start")


def _figure(scale: Scale, amount: float, words: str, y: float) -> Markup:
    return text(words, scale.percent(amount), y, f"tick {scale.side(amount)}".strip())


def round_ticks(low: float, high: float, most: int = _MOST) -> list[float]:
    """Return the multiples of a round step from low to high, at most so many steps of them."""
    step = _round_step(low, high, most)
    multiples = (step * index for index in count(ceil(low / step)))
    return list(takewhile(lambda tick: tick <= high * (1 + _NEAR), multiples))


def _round_step(low: float, high: float, most: int = _MOST) -> float:
    size = 10.0 ** floor(log10((high - low) / most))
    return next(size * times for times in _STEPS if (high - low) / (size * times) <= most)


def factor_ticks(low: float, high: float) -> list[float]:
    """Return round figures from low to high of a logarithmic axis: of one decade or many.

    Of few factors these are multiples of a step; of many 1, 2 and 5 of each decade, 1 and 3, or 1 alone.
    """
    if high / low < _FACTOR:
        return round_ticks(low, high)
    for mantissas in _MANTISSAS:
        figures = _ladder(low, high, mantissas)
        ticks = [each for each in figures if low <= each <= high * (1 + _NEAR)]
        if len(ticks) <= _MOST:
            return ticks
    return [*ticks[: -1 : ceil(len(ticks) / _MOST)], ticks[-1]]


def short(figure: str) -> str:
    """Return a figure without the zeros that end its decimals: 20.0 GiB is 20 GiB."""
    return _LAST_ZEROS.sub(lambda found: found[1].rstrip("."), figure)
