"""Predicted against published figures: a dot per run, on logarithmic scales.

All dots are one path of strokes without length, whose round ends are drawn in pixels: hundreds of
runs stay a small picture, and dots stay round at any width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from web.drawing import Scale, factors_across, factors_upwards, picture, shape, stretched

_STEPS = 1000
"""Of each axis."""
_HEIGHT, _BELOW = 300, 20
_LEFT_PERCENT = 12
"""What the figures of the axis take of the width."""
_EDGE = 1.15
"""What the scale leaves beyond the least and the most."""
_BAND = 1.2
"""Beside the diagonal: 20 % too much, and as much too little."""

_CAPTION = (
    " Published across, predicted upwards, on logarithmic scales. On the line both are the same; the"
    " band is 20 % to either side."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What is compared, and in which unit."""

    name: str
    show: Callable[[float], str]
    """An amount with its unit."""
    unit: float
    """That round figures are multiples of."""


def draw_predicted(pairs: Sequence[tuple[float, float]], measure: Measure) -> Markup:
    """Return the picture.

    Args:
        pairs: published and predicted, both above 0; one at least.
        measure: is compared.
    """
    amounts = [amount for pair in pairs for amount in pair]
    least, most = min(amounts) / _EDGE, max(amounts) * _EDGE
    steps = Scale(least=least, most=most, end=_STEPS, is_of_factors=True)
    across, upwards = (
        replace(steps, start=_LEFT_PERCENT, end=100),
        replace(steps, start=_HEIGHT, end=0),
    )
    wide = round(steps.at(least * _BAND))
    dots = "".join(
        f"M{round(steps.at(published))} {_STEPS - round(steps.at(predicted))}h0"
        for published, predicted in pairs
    )
    drawn = picture(
        "predicted",
        f"{measure.name}, predicted against published, of {len(pairs)} runs",
        _HEIGHT + _BELOW,
        stretched(
            _LEFT_PERCENT,
            _HEIGHT,
            (_STEPS, _STEPS),
            shape("rect", css="ground", width=_STEPS, height=_STEPS),
            shape(
                "path",
                css="band",
                d=f"M0 {_STEPS - wide}L{_STEPS} {-wide}V{wide}L0 {_STEPS + wide}Z",
            ),
            shape("path", css="exact-line", d=f"M0 {_STEPS}L{_STEPS} 0"),
            shape("path", css="runs", d=dots),
        ),
        *factors_across(across, measure.unit, measure.show, _HEIGHT + _BELOW - 8),
        *factors_upwards(upwards, measure.unit, measure.show),
    )
    caption = shape("figcaption", shape("strong", f"{measure.name}."), _CAPTION, css="note")
    return shape("figure", drawn, caption)
