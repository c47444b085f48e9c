"""A node's wiring -> a picture as inline SVG, without script or style attributes.

Islands of NVLink are boxes, NUMA nodes bands behind the GPUs, network adapters chips beside them.
Rails carry the name of what they are; lines of a mesh their number of links. There are two
drawings of the same: one for narrow screens, one for wide; the style sheet shows one of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from web.node_fabric import ARC, LABEL, Arrangement, GpuRow, Size, ordered
from web.node_shapes import (
    LINE_GAP,
    PADDING,
    PILL,
    Block,
    Box,
    around,
    gpu_cell,
    join,
    line_label,
    link,
    pill,
    rail,
    rectangle,
    stacked,
    text,
    with_band,
    with_chips,
    with_frame,
)
from web.node_text import describe, title
from web.node_tree import Node, NodePart, NvlinkFabric, PcieGroup, links_word

NARROW = Size(width=308, columns=4, cell_width=60, gap=12)
WIDE = Size(width=820, columns=8, cell_width=80, gap=16)
_EDGE = 6
_BAND = 3
"""What a band is wider than the GPUs on it, on each side."""
_MOST_LABELLED = 4
"""GPUs of a row whose lines carry a label each."""

_SVG = Markup(
    '<svg class="node {css}" role="img" aria-labelledby="{css}-title {css}-facts"'
    ' width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
    '<title id="{css}-title">{title}</title><desc id="{css}-facts">{facts}</desc>{inside}</svg>'
)


def picture(node: Node) -> Markup:
    """Return both drawings of a node."""
    return join(_svg(node, size, css) for size, css in ((NARROW, "narrow"), (WIDE, "wide")))


def _svg(node: Node, size: Size, css: str) -> Markup:
    block = _Drawing(node=node, size=size).part(node.root)
    return _SVG.format(
        css=css,
        width=block.width + 2 * _EDGE,
        height=block.height + 2 * _EDGE,
        title=title(node),
        facts=" ".join(describe(node)),
        inside=block.at(_EDGE, _EDGE),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawing:
    node: Node
    size: Size

    def part(self, part: NodePart, around: NodePart | None = None, width: float = 0) -> Block:
        """Return a part, on its band and with its adapters if what is around it has none.

        Args:
            part: what to draw.
            around: the group that it belongs to; None for the whole node.
            width: room for it; 0 for all there is.
        """
        width = width or self.size.width
        numa = self.node.numa(part.gpus)
        has_band = numa is not None and not (around and self.node.numa(around.gpus) is not None)
        near = self.node.near(part.gpus)
        has_chips = near is not None and not (around and self.node.near(around.gpus) is not None)
        width -= 2 * PADDING if has_band else 0
        block = self._fabric(part) if isinstance(part, NvlinkFabric) else self._group(part, width)
        if near and has_chips:
            block = with_chips(block, near)
        if numa is not None and has_band:
            return with_band(block, numa)
        is_wrapped = isinstance(part, PcieGroup) and around is not None and block.rows > 1
        return with_frame(block) if is_wrapped else block

    def _group(self, group: PcieGroup, width: float) -> Block:
        blocks = [self.part(part, group, width) for part in group.parts]
        return stacked(_fitted(blocks, width), "pcie", group.word)

    def _fabric(self, fabric: NvlinkFabric) -> Block:
        places = Arrangement(node=self.node, fabric=fabric, size=self.size)
        rows = tuple(places.rows())
        cells = {gpu: box for row in rows for gpu, box in row.cells.items()}
        edge = around(list(cells.values()))
        shapes = (
            *(shape for row in rows for shape in _bands(places, row)),
            *_boxes(places, rows),
            *_rails(places, rows),
            *(shape for row in rows for shape in _arcs(places, row)),
            *_bridges(places, rows),
            *_others(places, rows),
            *(self._cell(gpu, box) for gpu, box in cells.items()),
            *(shape for row in rows for shape in _chips(places, row)),
        )
        last = rows[-1]
        height = last.box.bottom + places.inset + (0 if last.has_outer_above else last.outer)
        return Block(width=edge.right + places.inset, height=height, inside=join(shapes))

    def _cell(self, gpu: int, box: Box) -> Markup:
        order = self.node.gpu_order
        if gpu not in order:
            return gpu_cell("unused", box, f"GPU{gpu}", "unused")
        role = "" if self.node.is_in_index_order else f"rank {order.index(gpu)}"
        return gpu_cell("used", box, f"GPU{gpu}", role)


def _fitted(blocks: Sequence[Block], width: float) -> list[Sequence[Block]]:
    """Return blocks in as few rows as fit a width, the rows as even as can be."""
    for count in range(1, len(blocks)):
        wide = -(-len(blocks) // count)
        rows = [blocks[first : first + wide] for first in range(0, len(blocks), wide)]
        if all(sum(b.width for b in row) + LINE_GAP * (len(row) - 1) <= width for row in rows):
            return rows
    return [[block] for block in blocks]


def _bands(places: Arrangement, row: GpuRow) -> Iterator[Markup]:
    """Yield the bands of the NUMA nodes, from the cells to what lies outside of them."""
    for run in row.runs(places.node.topology.numa.get):
        numa = places.numa(run)
        if numa is None:
            continue
        box = run.box.grown(_BAND)
        has_arcs_between = row.has_inner_above == row.has_outer_above
        reach = places.inset + row.outer + (row.inner if has_arcs_between else 0) - _BAND
        y = box.y - reach if row.has_outer_above else box.y
        yield rectangle("numa", Box(x=box.x, y=y, width=box.width, height=box.height + reach))
        label = y + LABEL / 2 if row.has_outer_above else box.bottom + reach - LABEL / 2
        yield text("numa", box.middle, label, f"NUMA {numa}")


def _chips(places: Arrangement, row: GpuRow) -> Iterator[Markup]:
    for run in row.runs(places.node.adapters.__getitem__):
        block = places.chips(run)
        if block is None:
            continue
        y = row.box.bottom + places.inset
        if row.has_outer_above:
            y = row.box.y - places.inset - block.height
        yield block.at(run.box.x, y)


def _boxes(places: Arrangement, rows: Sequence[GpuRow]) -> Iterator[Markup]:
    """Yield the outlines of islands."""
    for island in places.fabric.islands:
        if len(island) == 1:
            continue
        parts = []
        for row in rows:
            cells = [box for gpu, box in row.cells.items() if gpu in island]
            if cells:
                inside = around(cells)
                parts.append(
                    Box(x=inside.x, y=row.box.y, width=inside.width, height=row.box.height)
                )
        box = around(parts)
        left = places.left - places.inset
        yield rectangle(
            "island",
            Box(x=box.x - left, y=box.y, width=box.width + left, height=box.height).grown(
                places.inset
            ),
            12,
        )


def _rails(places: Arrangement, rows: Sequence[GpuRow]) -> Iterator[Markup]:
    """Yield what joins a uniform island: a rail over each row, or one between the only two."""
    if not places.fabric.is_uniform:
        return
    links = list(places.fabric.nvlink.values())
    word = links_word(links) + (" every pair" if len(links) > 1 else "")
    if places.is_facing:
        above, below = (list(row.cells.values()) for row in rows)
        y = (above[0].bottom + below[0].y) / 2
        yield rail(
            "nvlink", y, [(b.middle, b.bottom) for b in above], [(b.middle, b.y) for b in below]
        )
        yield pill("nvlink", around(above).middle, y, word)
        return
    heights = [row.box.y + PILL / 2 for row in rows]
    trunk = [(places.inset + 2.0, heights[0])] if len(rows) > 1 else []
    for row, y in zip(rows, heights, strict=True):
        cells = list(row.cells.values())
        yield rail("nvlink", y, trunk, [(box.middle, box.y) for box in cells])
    yield pill("nvlink", around(list(rows[0].cells.values())).middle, heights[0], word)


def _arcs(places: Arrangement, row: GpuRow) -> Iterator[Markup]:
    """Yield the lines of a mesh within a row."""
    side = -1 if row.has_inner_above else 1
    labels = []
    for distance, (first, second) in places.within(tuple(row.cells)):
        a, b = row.cells[first], row.cells[second]
        y = a.y if row.has_inner_above else a.bottom
        reach = (a.width / 2 - 14) / distance
        x, to, top = a.middle + reach, b.middle - reach, y + side * (distance * ARC + 2)
        bend = y + (top - y) * 4 / 3
        links = places.fabric.nvlink[ordered(first, second)]
        yield link(
            f"M{x:.1f} {y:.1f}C{x:.1f} {bend:.1f} {to:.1f} {bend:.1f} {to:.1f} {y:.1f}",
            links,
            f"GPU{first} to GPU{second}: NV{links}",
        )
        labels.append(line_label("inside", (x + to) / 2, top, f"NV{links}"))
    if len(row.cells) <= _MOST_LABELLED:
        yield from labels


def _bridges(places: Arrangement, rows: Sequence[GpuRow]) -> Iterator[Markup]:
    """Yield the lines of a mesh from row to row."""
    labels = []
    row_of = {gpu: number for number, row in enumerate(rows) for gpu in row.cells}
    for (low, high), links in places.fabric.nvlink.items():
        if not places.has_lines or row_of[low] == row_of[high]:
            continue
        first, second = sorted((low, high), key=row_of.__getitem__)
        a, b = rows[row_of[first]].cells[first], rows[row_of[second]].cells[second]
        yield link(
            f"M{a.middle:.1f} {a.bottom:.1f}L{b.middle:.1f} {b.y:.1f}",
            links,
            f"GPU{first} to GPU{second}: NV{links}",
        )
        at = 0.3
        x, y = a.middle + (b.middle - a.middle) * at, a.bottom + (b.y - a.bottom) * at
        labels.append(line_label("between", x, y, f"NV{links}"))
    if places.is_facing:
        yield from labels


def _others(places: Arrangement, rows: Sequence[GpuRow]) -> Iterator[Markup]:
    """Yield what joins the pairs of two facing rows that have no NVLink."""
    upper, lower = (list(row.cells.values()) for row in (rows[0], rows[-1]))
    if not places.is_facing or not places.has_lines or len(upper) == 1:
        return
    middle = len(upper) // 2
    x = (upper[middle - 1].right + upper[middle].x) / 2
    top, bottom = upper[0].bottom + places.inset, lower[0].y - places.inset
    yield rail("pcie", top, [], [(x, bottom)])
    yield pill("pcie", x, top + (bottom - top) * 0.66, places.fabric.word)
