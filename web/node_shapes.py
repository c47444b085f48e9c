"""The shapes of the node's picture: blocks with a size, and what they are made of."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from web.node_text import some_names
from web.node_tree import Near

PADDING = 8
CHARACTER = 6.7
"""Width of one in the small type of the drawing, which is monospaced."""
PILL = 18
LINE_GAP = 12
"""Between blocks of a row."""
_CHIP = 17
_CHIP_GAP = 4
_MOST_CHIP_LINES = 3
_LABEL = 16

_GROUP = Markup('<g transform="translate({x:.1f} {y:.1f})">{inside}</g>')
_RECT = Markup(
    '<rect class="{css}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    ' rx="{radius}"/>'
)
_TEXT = Markup('<text class="{css}" x="{x:.1f}" y="{y:.1f}">{text}</text>')
_PATH = Markup('<path class="{css}" d="{d}"/>')
_LINK = Markup('<path class="nvlink" stroke-width="{width}" d="{d}"><title>{title}</title></path>')
_CLIPPED = Markup(
    '<svg x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}">'
    "<title>{title}</title>{inside}</svg>"
)


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
        return _GROUP.format(x=x, y=y, inside=self.inside)


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


def join(shapes: Iterable[Markup]) -> Markup:
    """Return shapes as one; the later ones cover the earlier."""
    return Markup("").join(shapes)


def rectangle(css: str, box: Box, radius: int = 8) -> Markup:
    """Return a rounded box."""
    return _RECT.format(
        css=css, x=box.x, y=box.y, width=box.width, height=box.height, radius=radius
    )


def text(css: str, x: float, y: float, words: str) -> Markup:
    """Return a line of text with its vertical middle at y."""
    return _TEXT.format(css=css, x=x, y=y, text=words)


def pill(css: str, x: float, y: float, words: str) -> Markup:
    """Return a label on a line, centred."""
    if not words:
        return Markup("")
    width = len(words) * CHARACTER + 14
    box = Box(x=x - width / 2, y=y - PILL / 2, width=width, height=PILL)
    return rectangle(f"pill {css}", box, PILL // 2) + text(f"pill {css}", x, y, words)


def line_label(css: str, x: float, y: float, words: str) -> Markup:
    """Return a label on a line, with a halo in the colour of what is behind it."""
    return text(f"line-label {css}", x, y, words)


def rail(
    css: str, y: float, above: Sequence[tuple[float, float]], below: Sequence[tuple[float, float]]
) -> Markup:
    """Return a line that joins points over it and under it, each given as (x, y)."""
    ends = [x for x, _ in (*above, *below)]
    steps = [f"M{min(ends):.1f} {y:.1f}H{max(ends):.1f}"]
    steps += [f"M{x:.1f} {end:.1f}V{y:.1f}" for x, end in (*above, *below)]
    return _PATH.format(css=f"rail {css}", d="".join(steps))


def link(d: str, links: int, title: str) -> Markup:
    """Return NVLinks between two GPUs, drawn wider the more there are."""
    return _LINK.format(width=min(1 + links, 7), d=d, title=title)


def gpu_cell(css: str, box: Box, name: str, role: str) -> Markup:
    """Return a GPU with its name and, if it has one to show, its role."""
    y = box.y + box.height / 2
    cell = rectangle(f"gpu {css}", box, 6)
    if not role:
        return cell + text("gpu-name", box.middle, y, name)
    return cell + text("gpu-name", box.middle, y - 7, name) + text("role", box.middle, y + 8, role)


def chips(near: Near, width: float) -> Block:
    """Return network adapters as chips in lines that fit a width, and their PCIe class."""
    names, pcie = near
    lines = _lines([*names, pcie], width)
    if len(lines) > _MOST_CHIP_LINES:
        lines = _lines([some_names(names), pcie], width)
    shapes = []
    for number, line in enumerate(lines):
        y = number * (_CHIP + _CHIP_GAP) + _CHIP_GAP
        taken = [min(_chip_width(word), width) for word in line]
        x = (width - sum(taken) - _CHIP_GAP * (len(line) - 1)) / 2
        for word, wide in zip(line, taken, strict=True):
            is_class = word == pcie and number == len(lines) - 1 and word is line[-1]
            box = Box(x=x, y=y, width=wide, height=_CHIP)
            shapes.append(
                text("class", box.middle, y + _CHIP / 2, word) if is_class else _chip(word, box)
            )
            x += wide + _CHIP_GAP
    return Block(
        width=width, height=len(lines) * (_CHIP + _CHIP_GAP) + _CHIP_GAP, inside=join(shapes)
    )


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
    inside = Box(x=0.5, y=0.5, width=box.width - 1, height=box.height - 1)
    return _CLIPPED.format(
        x=box.x,
        y=box.y,
        width=box.width,
        height=box.height,
        title=word,
        inside=rectangle("chip", inside, 4) + text("chip", box.width / 2, box.height / 2, shown),
    )


def with_chips(block: Block, near: Near) -> Block:
    """Return the block with its network adapters below."""
    below = chips(near, block.width)
    return Block(
        width=block.width,
        height=block.height + below.height,
        inside=block.inside + below.at(0, block.height),
    )


def with_band(block: Block, node: int) -> Block:
    """Return the block on the band of its NUMA node."""
    words = f"NUMA {node}"
    width = max(block.width, len(words) * CHARACTER) + 2 * PADDING
    height = block.height + PADDING + _LABEL + 4
    band = rectangle("numa", Box(x=0, y=0, width=width, height=height), 10)
    label = text("numa", width / 2, height - _LABEL / 2 - 2, words)
    inside = band + block.at((width - block.width) / 2, PADDING) + label
    return Block(width=width, height=height, inside=inside)


def with_frame(block: Block) -> Block:
    """Return the block in a frame, which says that it is one to what is outside."""
    box = Box(x=0, y=0, width=block.width + 2 * PADDING, height=block.height + 2 * PADDING)
    inside = rectangle("frame", box, 10) + block.at(PADDING, PADDING)
    return Block(width=box.width, height=box.height, inside=inside)


def stacked(rows: Sequence[Sequence[Block]], css: str, word: str) -> Block:
    """Return blocks in rows, joined by rails: between the rows, or under the only one."""
    widths = [sum(b.width for b in row) + LINE_GAP * (len(row) - 1) for row in rows]
    width, y = max(widths), 0.0
    placed: list[list[Box]] = []
    shapes = []
    for row, wide in zip(rows, widths, strict=True):
        x, boxes = (width - wide) / 2, []
        for block in row:
            boxes.append(Box(x=x, y=y, width=block.width, height=block.height))
            shapes.append(block.at(x, y))
            x += block.width + LINE_GAP
        placed.append(boxes)
        y = max(box.bottom for box in boxes) + 2 * PILL
    lower = placed[1:] or [[]]
    rails = [_joint(css, *joined, width, word) for joined in zip(placed, lower, strict=False)]
    height = y - PILL / 2 if len(placed) == 1 else y - 2 * PILL
    return Block(width=width, height=height, rows=len(rows), inside=join([*rails, *shapes]))


def _joint(css: str, upper: Sequence[Box], lower: Sequence[Box], width: float, word: str) -> Markup:
    y = max(box.bottom for box in upper) + PILL
    above = [(box.middle, box.bottom) for box in upper]
    below = [(box.middle, box.y) for box in lower]
    return rail(css, y, above, below) + pill(css, width / 2, y, word)
