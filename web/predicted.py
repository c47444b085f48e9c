"""Predicted against published figures as inline SVG: a dot per run, on logarithmic scales.

All dots are one path of strokes without length, whose round ends are drawn in pixels: hundreds of
runs stay a small picture, and dots stay round at any width.
"""

from collections.abc import Callable, Sequence
from math import log

from markupsafe import Markup

_STEPS = 1000
"""Of each axis."""
_HEIGHT = 300
_EDGE = 1.15
"""What the scale leaves beyond the least and the most."""
_BAND = 1.2
"""Beside the diagonal: 20 % too much, and as much too little."""

_SVG = Markup(
    '<figure class="predicted"><svg role="img" aria-label="{label}" width="100%" height="{height}"'
    ' viewBox="0 0 {steps} {steps}" preserveAspectRatio="none"><title>{label}</title>'
    '<path class="band" d="{band}"/><path class="exact-line" d="M0 {steps}L{steps} 0"/>'
    '<path class="runs" d="{dots}"/></svg>'
    '<figcaption class="note"><strong>{what}.</strong> Published across, predicted upwards, both from {least} to {most} on'
    " logarithmic scales. On the line both are the same; the band is 20 % to either side.</figcaption></figure>"
)


def draw_predicted(
    pairs: Sequence[tuple[float, float]], what: str, show: Callable[[float], str]
) -> Markup:
    """Return the picture.

    Args:
        pairs: published and predicted, both above 0; one at least.
        what: is compared.
        show: an amount with its unit.
    """
    amounts = [amount for pair in pairs for amount in pair]
    least, most = min(amounts) / _EDGE, max(amounts) * _EDGE
    span = log(most / least)

    def place(amount: float) -> int:
        return round(_STEPS * log(amount / least) / span)

    wide = round(_STEPS * log(_BAND) / span)
    band = f"M0 {_STEPS - wide}L{_STEPS} {-wide}V{wide}L0 {_STEPS + wide}Z"
    dots = "".join(
        f"M{place(published)} {_STEPS - place(predicted)}h0" for published, predicted in pairs
    )
    return _SVG.format(
        what=what,
        label=f"{what}, predicted against published, of {len(pairs)} runs",
        height=_HEIGHT,
        steps=_STEPS,
        band=band,
        dots=dots,
        least=show(least),
        most=show(most),
    )
