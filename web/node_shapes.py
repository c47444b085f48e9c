"""What a node's picture is made of: blocks with a size, boxes, and the shapes that several of them have."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from web.drawing import shape, text
from web.node_text import some_names
from web.node_tree import Near

PADDING = 8
CHARACTER = 6.7
"""Width of one in the small type of the drawing, which is monospaced."""
PILL = 18
_CHIP = 17
_CHIP_GAP = 4
_MOST_CHIP_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A finished part of the drawing, with its corner at 0, 0."""

    width: float
    height: float
    inside: Markup
    rows: int = 1
    """Rows of blocks in it."""

    def at(self, x: float, y: float) -> Markup:
        """Return the part, moved."""
        return shape("g", self.inside, transform=f"translate({x:g} {y:g})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Where something lies."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """Return the horizontal middle."""
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        """Return the lower edge."""
        return self.y + self.height

    @property
    def right(self) -> float:
        """Return the right edge."""
        return self.x + self.width

    def grown(self, by: float) -> "Box":
        """Return a box that is larger on each side."""
        return Box(
            x=self.x - by, y=self.y - by, width=self.width + 2 * by, height=self.height + 2 * by
        )


def around(boxes: Sequence[Box]) -> Box:
    """Return the smallest box that holds them all."""
    x, y = min(box.x for box in boxes), min(box.y for box in boxes)
    right, bottom = max(box.right for box in boxes), max(box.bottom for box in boxes)
    return Box(x=x, y=y, width=right - x, height=bottom - y)


def rectangle(css: str, box: Box, radius: int = 8) -> Markup:
    """Return a rounded box."""
    return shape("rect", css=css, x=box.x, y=box.y, width=box.width, height=box.height, rx=radius)


def pill(css: str, x: float, y: float, words: str) -> Markup:
    """Return a label on a line, centred; nothing without words."""
    if not words:
        return Markup()
    width = len(words) * CHARACTER + 14
    box = Box(x=x - width / 2, y=y - PILL / 2, width=width, height=PILL)
    return rectangle(f"pill {css}", box, PILL // 2) + text(words, x, y, f"pill {css}")


def rail(css: str, y: float, ends: Sequence[tuple[float, float]]) -> Markup:
    """Return a line across that joins points over and under it, each given as (x, y)."""
    across = [x for x, _ in ends]
    steps = [
        f"M{min(across):g} {y:g}H{max(across):g}",
        *(f"M{x:g} {end:g}V{y:g}" for x, end in ends),
    ]
    return shape("path", css=f"rail {css}", d="".join(steps))


def chips(near: Near, width: float) -> Block:
    """Return network adapters as chips in lines that fit a width, and their PCIe class."""
    names, pcie = near
    lines = _lines([*names, pcie], width)
    if len(lines) > _MOST_CHIP_LINES:
        lines = _lines([some_names(names), pcie], width)
    shapes = []
    for number, line in enumerate(lines):
        taken = [min(_chip_width(word), width) for word in line]
        x = (width - sum(taken) - _CHIP_GAP * (len(line) - 1)) / 2
        for word, wide in zip(line, taken, strict=True):
            y = number * (_CHIP + _CHIP_GAP) + _CHIP_GAP
            box = Box(x=x, y=y, width=wide, height=_CHIP)
            is_class = word is line[-1] and line is lines[-1]
            shapes.append(
                text(pcie, box.middle, y + _CHIP / 2, "class") if is_class else _chip(word, box)
            )
            x += wide + _CHIP_GAP
    height = len(lines) * (_CHIP + _CHIP_GAP) + _CHIP_GAP
    return Block(width=width, height=height, inside=Markup().join(shapes))


def _lines(words: Sequence[str], width: float) -> list[list[str]]:
    lines: list[list[str]] = [[]]
    used = 0.0
    for word in words:
        wide = _chip_width(word)
        if lines[-1] and used + wide > width:
            lines.append([])
            used = 0.0
        lines[-1].append(word)
        used += wide + _CHIP_GAP
    return lines


def _chip_width(word: str) -> float:
    return len(word) * CHARACTER + 10


def _chip(word: str, box: Box) -> Markup:
    """Return one chip; of a name that does not fit the title holds all."""
    most = int((box.width - 8) / CHARACTER)
    shown = word if len(word) <= most else f"{word[: most - 1]}\u2026"
    return shape(
        "g",
        shape("title", word),
        rectangle("chip", box.grown(-0.5), 4),
        text(shown, box.middle, box.y + box.height / 2, "chip"),
    )
