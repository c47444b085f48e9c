"""Terms of a ledger -> bars as inline SVG, without script or style attributes.

Positions are percentages, so the drawing follows the page's width and its text is never stretched.
Every segment carries the letter of its row in the table beside it: colour is never the only key.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from markupsafe import Markup

from planner.term import Term

_HEIGHT = 44
_RULER_HEIGHT = 14
_NARROWEST_LABEL_PERCENT = 3.5
"""Below this a letter does not fit into its segment on a narrow screen."""

_SVG = Markup(
    '<svg class="bar" role="img" aria-label="{label}" width="100%" height="{height}">{inside}</svg>'
)
_SEGMENT = Markup(
    '<g class="{css}"><title>{title}</title>'
    '<rect x="{x:.3f}%" y="0" width="{width:.3f}%" height="{height}"/>{letter}</g>'
)
_TOTAL = Markup('<rect class="part-total" x="0" y="0" width="{width:.3f}%" height="{height}"/>')
_LETTER = Markup('<text x="{x:.3f}%" y="{y}">{letter}</text>')
_MARK = Markup('<line class="limit" x1="{x:.3f}%" x2="{x:.3f}%" y1="0" y2="{height}"/>')
_RULER = Markup(
    '<svg class="ruler" aria-hidden="true" width="100%" height="{height}">'
    '<line x1="{low:.3f}%" x2="{high:.3f}%" y1="7" y2="7"/>'
    '<line x1="{low:.3f}%" x2="{low:.3f}%" y1="2" y2="12"/>'
    '<line x1="{high:.3f}%" x2="{high:.3f}%" y1="2" y2="12"/>'
    '<circle cx="{at:.3f}%" cy="7" r="3"/></svg>'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One term: a segment of the bar, and the line of the table that explains it."""

    letter: str
    css: str
    name: str
    amount: float
    shown: str
    """The amount with its unit."""
    how: str
    source: str


def rows(terms: Sequence[Term], show: Callable[[float], str]) -> tuple[Row, ...]:
    """Return one row per term that is not zero, each with its letter."""
    present = [term for term in terms if term.amount]
    return tuple(
        Row(
            letter=letter,
            css=f"part-{letter.lower()}",
            name=term.name.replace("_", " "),
            amount=float(term.amount),
            shown=show(term.amount),
            how=term.how,
            source=term.source,
        )
        for letter, term in zip(ascii_uppercase, present, strict=False)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What a total is drawn against."""

    full: float
    """The amount at the right edge."""
    low: float
    high: float
    """The range of the total."""
    limit: float | None = None
    """Where to draw a line that should not be crossed."""

    def percent(self, amount: float) -> float:
        """Return where an amount lies, in percent of the width."""
        return 100 * amount / self.full


def stacked_bar(parts: Sequence[Row], scale: Scale) -> Markup:
    """Return one segment per part, from left to right, on the scale."""
    inside = []
    start = 0.0
    for part in parts:
        inside.append(_segment(part, start, scale))
        start += part.amount
    label = ", ".join(f"{part.name} {part.shown}" for part in parts)
    return _bar(inside, label, scale)


def meter(amount: float, label: str, scale: Scale) -> Markup:
    """Return the total as one segment and, below it, its range."""
    segment = _TOTAL.format(width=scale.percent(amount), height=_HEIGHT)
    return _bar([segment], label, scale) + _RULER.format(
        low=scale.percent(scale.low),
        high=scale.percent(scale.high),
        at=scale.percent(amount),
        height=_RULER_HEIGHT,
    )


def _bar(inside: list[Markup], label: str, scale: Scale) -> Markup:
    if scale.limit is not None:
        inside.append(_MARK.format(x=scale.percent(scale.limit), height=_HEIGHT))
    return _SVG.format(label=label, height=_HEIGHT, inside=Markup("").join(inside))


def _segment(part: Row, start: float, scale: Scale) -> Markup:
    x, width = scale.percent(start), scale.percent(part.amount)
    letter = Markup("")
    if width >= _NARROWEST_LABEL_PERCENT:
        letter = _LETTER.format(x=x + width / 2, y=_HEIGHT // 2, letter=part.letter)
    return _SEGMENT.format(
        css=part.css,
        title=f"{part.letter}: {part.name} {part.shown}",
        x=x,
        width=width,
        height=_HEIGHT,
        letter=letter,
    )
