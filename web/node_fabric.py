"""GPUs that NVLink joins -> their part of the picture: rows of cells, with room for lines and adapters.

What all of them share (NUMA node, adapters) is drawn around the whole and not here. Two rows face each
other, so that what joins them meets nothing on its way; of more, each has its lines above it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby, pairwise

from markupsafe import Markup

from planner.hardware.topology import Pair
from web.drawing import shape, text
from web.node_shapes import PADDING, PILL, Block, Box, around, chips, pill, rail, rectangle
from web.node_tree import Node, NvlinkFabric, links_word

_CELL_WIDTH, _CELL_HEIGHT, _GAP = 60, 34, 12
_COLUMNS = 4
"""GPUs side by side: the text beneath which a telephone would have to be smaller is that of four."""
_ISLAND_GAP = 3 * PADDING
_LABEL = 18
"""Height of a NUMA node's name."""
_BAND = 3
"""What a NUMA node's band is wider than the GPUs on it, on each side."""
_ARC = 17
"""Height of an arc for each GPU that it reaches further."""
_ARC_FOOT = 12
_MOST_LINES = 120
"""Of a mesh; with more, a word says how many links there are."""
_FACING_GAP = 60
_FACING = 2
_BRIDGE_LABEL = 0.3
"""How far down a line from row to row its label is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """GPUs side by side, with what lies over and under them."""

    cells: Mapping[int, Box]
    inner: float
    """Height of the lines within the row, or of its rail."""
    outer: float
    """Height of adapters and NUMA labels."""
    has_inner_above: bool
    has_outer_above: bool

    @property
    def box(self) -> Box:
        """Return the place of the cells and their lines."""
        cells = around(list(self.cells.values()))
        y = cells.y - (self.inner if self.has_inner_above else 0)
        return Box(x=cells.x, y=y, width=cells.width, height=cells.height + self.inner)


def draw_fabric(node: Node, fabric: NvlinkFabric) -> Block:
    """Return the GPUs in rows, with islands as boxes, NVLink as rails or lines, and what is near to each."""
    rows, inset = tuple(_rows(node, fabric)), _inset(fabric)
    cells = {gpu: box for row in rows for gpu, box in row.cells.items()}
    shapes = (
        *(band for row in rows for band in _bands(node, fabric, row)),
        *_boxes(fabric, rows),
        *(_rails(fabric, rows) if fabric.is_uniform else ()),
        *(_lines(fabric, rows) if _has_lines(fabric) else ()),
        *(_cell(node, gpu, box) for gpu, box in cells.items()),
        *(chip for row in rows for chip in _chips(node, fabric, row)),
    )
    last = rows[-1]
    height = last.box.bottom + inset + (0 if last.has_outer_above else last.outer)
    width = around(list(cells.values())).right + inset
    return Block(width=width, height=height, inside=Markup().join(shapes))


def _inset(fabric: NvlinkFabric) -> int:
    return PADDING if fabric.nvlink else 0


def _has_lines(fabric: NvlinkFabric) -> bool:
    return not fabric.is_uniform and 0 < len(fabric.nvlink) <= _MOST_LINES


def _has_trunk(fabric: NvlinkFabric, num_rows: int) -> bool:
    return fabric.is_uniform and num_rows > _FACING


def _rows(node: Node, fabric: NvlinkFabric) -> Iterator[_Row]:
    split, y, inset = _split(fabric), 0.0, _inset(fabric)
    left = inset + (2 * PADDING if _has_trunk(fabric, len(split)) else 0)
    widest = max(_width(fabric, gpus) for gpus in split)
    is_facing = len(split) == _FACING
    gap = _FACING_GAP if _has_lines(fabric) else 2 * PILL
    for number, gpus in enumerate(split):
        is_first_of_two = is_facing and number == 0
        has_inner_above = is_first_of_two or not is_facing
        inner, outer = _inner(fabric, gpus, is_facing=is_facing), _outer(node, fabric, gpus)
        y += inset + (inner if has_inner_above else 0) + (outer if is_first_of_two else 0)
        yield _Row(
            cells=_cells(fabric, gpus, left + (widest - _width(fabric, gpus)) / 2, y),
            inner=inner,
            outer=outer,
            has_inner_above=has_inner_above,
            has_outer_above=is_first_of_two,
        )
        y += _CELL_HEIGHT + inset
        y += (0 if has_inner_above else inner) + (0 if is_first_of_two else outer)
        y += gap if is_first_of_two else PADDING


def _split(fabric: NvlinkFabric) -> list[tuple[int, ...]]:
    """Return the GPUs of each row: islands in rows as even as can be, small ones in one."""
    rows: list[tuple[int, ...]] = []
    for island in fabric.islands:
        count = -(-len(island) // _COLUMNS)
        wide = -(-len(island) // count)
        if rows and len(rows[-1]) + len(island) <= _COLUMNS:
            rows[-1] = (*rows[-1], *island)
        else:
            rows += [island[first : first + wide] for first in range(0, len(island), wide)]
    return rows


def _spaces(fabric: NvlinkFabric, gpus: Sequence[int]) -> list[int]:
    island_of = {gpu: island for island in fabric.islands for gpu in island}
    return [
        _GAP if island_of[first] == island_of[second] else _ISLAND_GAP
        for first, second in pairwise(gpus)
    ]


def _width(fabric: NvlinkFabric, gpus: Sequence[int]) -> float:
    return len(gpus) * _CELL_WIDTH + sum(_spaces(fabric, gpus))


def _cells(fabric: NvlinkFabric, gpus: Sequence[int], x: float, y: float) -> dict[int, Box]:
    cells = {}
    for gpu, space in zip(gpus, (*_spaces(fabric, gpus), 0), strict=True):
        cells[gpu] = Box(x=x, y=y, width=_CELL_WIDTH, height=_CELL_HEIGHT)
        x += _CELL_WIDTH + space
    return cells


def _inner(fabric: NvlinkFabric, gpus: Sequence[int], *, is_facing: bool) -> float:
    if fabric.is_uniform:
        return 0 if is_facing else PILL + PADDING
    farthest = max((distance for distance, _ in _within(fabric, gpus)), default=0)
    return farthest * _ARC + _ARC_FOOT if farthest else 0


def _outer(node: Node, fabric: NvlinkFabric, gpus: Sequence[int]) -> float:
    cells = _cells(fabric, gpus, 0, 0)
    heights = [block.height for _, block in _adapters(node, fabric, cells)]
    return max(heights, default=0) + (_LABEL if list(_numa_nodes(node, fabric, cells)) else 0)


def _runs(
    cells: Mapping[int, Box], key: Callable[[int], object]
) -> Iterator[tuple[list[int], Box]]:
    """Yield the neighbours that have something in common, and where they lie."""
    for _, neighbours in groupby(cells, key):
        gpus = list(neighbours)
        yield gpus, around([cells[gpu] for gpu in gpus])


def _adapters(
    node: Node, fabric: NvlinkFabric, cells: Mapping[int, Box]
) -> Iterator[tuple[Box, Block]]:
    """Yield the adapters of neighbours, where not all GPUs of the fabric share them."""
    if node.near(fabric.gpus) is None:
        for gpus, box in _runs(cells, node.adapters.__getitem__):
            near = node.near(gpus)
            if near is not None:
                yield box, chips(near, box.width)


def _numa_nodes(
    node: Node, fabric: NvlinkFabric, cells: Mapping[int, Box]
) -> Iterator[tuple[Box, int]]:
    """Yield the NUMA node of neighbours, where not all GPUs of the fabric share it."""
    if node.numa(fabric.gpus) is None:
        for gpus, box in _runs(cells, node.topology.numa.get):
            numa = node.numa(gpus)
            if numa is not None:
                yield box, numa


def _bands(node: Node, fabric: NvlinkFabric, row: _Row) -> Iterator[Markup]:
    """Yield the bands of the NUMA nodes, from the cells to what lies outside of them."""
    has_arcs_between = row.has_inner_above == row.has_outer_above
    reach = _inset(fabric) + row.outer + (row.inner if has_arcs_between else 0) - _BAND
    for cells, numa in _numa_nodes(node, fabric, row.cells):
        box = cells.grown(_BAND)
        y = box.y - reach if row.has_outer_above else box.y
        yield rectangle("numa", Box(x=box.x, y=y, width=box.width, height=box.height + reach))
        label = y + _LABEL / 2 if row.has_outer_above else box.bottom + reach - _LABEL / 2
        yield text(f"NUMA {numa}", box.middle, label, "numa")


def _chips(node: Node, fabric: NvlinkFabric, row: _Row) -> Iterator[Markup]:
    for cells, block in _adapters(node, fabric, row.cells):
        above, below = row.box.y - _inset(fabric) - block.height, row.box.bottom + _inset(fabric)
        yield block.at(cells.x, above if row.has_outer_above else below)


def _cell(node: Node, gpu: int, box: Box) -> Markup:
    order, y = node.gpu_order, box.y + box.height / 2
    is_used = gpu in order
    role = f"rank {order.index(gpu)}" if is_used else "unused"
    cell = rectangle(f"gpu {'used' if is_used else 'unused'}", box, 6)
    if is_used and node.is_in_index_order:
        return cell + text(f"GPU{gpu}", box.middle, y, "gpu-name")
    return (
        cell
        + text(f"GPU{gpu}", box.middle, y - 7, "gpu-name")
        + text(role, box.middle, y + 8, "role")
    )


def _boxes(fabric: NvlinkFabric, rows: Sequence[_Row]) -> Iterator[Markup]:
    trunk = 2 * PADDING if _has_trunk(fabric, len(rows)) else 0
    for island in fabric.islands:
        held = [(row.box, [row.cells[gpu] for gpu in row.cells if gpu in island]) for row in rows]
        parts = [replace(around(cells), y=box.y, height=box.height) for box, cells in held if cells]
        box = around(parts)
        box = replace(box, x=box.x - trunk, width=box.width + trunk)
        if len(island) > 1:
            yield rectangle("island", box.grown(_inset(fabric)), 12)


def _rails(fabric: NvlinkFabric, rows: Sequence[_Row]) -> Iterator[Markup]:
    """Yield what joins a uniform island: a rail over each row, or one between the only two."""
    links = list(fabric.nvlink.values())
    word = links_word(links) + (" every pair" if len(links) > 1 else "")
    feet = [[(box.middle, box.y) for box in row.cells.values()] for row in rows]
    if len(rows) == _FACING:
        above, below = (list(row.cells.values()) for row in rows)
        heights = [(above[0].bottom + below[0].y) / 2]
        feet = [[*((box.middle, box.bottom) for box in above), *feet[1]]]
    else:
        heights = [row.box.y + PILL / 2 for row in rows]
    trunk = [(_inset(fabric) + 2.0, heights[0])] if _has_trunk(fabric, len(rows)) else []
    for y, ends in zip(heights, feet, strict=True):
        yield rail("nvlink", y, [*trunk, *ends])
    yield pill("nvlink", rows[0].box.middle, heights[0], word)


def _lines(fabric: NvlinkFabric, rows: Sequence[_Row]) -> Iterator[Markup]:
    """Yield the lines of a mesh, within each row and from row to row, and what joins its other pairs."""
    for row in rows:
        yield from _arcs(fabric, row)
    yield from _bridges(fabric, rows)
    if len(rows) == _FACING:
        yield from _others(fabric, rows)


def _within(fabric: NvlinkFabric, gpus: Sequence[int]) -> Iterator[tuple[int, Pair]]:
    """Yield the pairs of a row that have a line, each with its distance, the farthest first."""
    places = combinations(enumerate(gpus), 2)
    far_first = sorted(places, key=lambda pair: pair[0][0] - pair[1][0])
    for (place, first), (other_place, second) in far_first:
        if _has_lines(fabric) and _ordered(first, second) in fabric.nvlink:
            yield other_place - place, (first, second)


def _ordered(first: int, second: int) -> Pair:
    return min(first, second), max(first, second)


def _line(fabric: NvlinkFabric, first: int, second: int, d: str) -> Markup:
    links = fabric.nvlink[_ordered(first, second)]
    title = shape("title", f"GPU{first} to GPU{second}: NV{links}")
    return shape("path", title, css="nvlink", stroke_width=min(1 + links, 7), d=d)


def _label(fabric: NvlinkFabric, pair: Pair, css: str, x: float, y: float) -> Markup:
    return text(f"NV{fabric.nvlink[_ordered(*pair)]}", x, y, f"line-label {css}")


def _arcs(fabric: NvlinkFabric, row: _Row) -> Iterator[Markup]:
    """Yield the lines of a mesh within a row, and then their labels."""
    side = -1 if row.has_inner_above else 1
    labels = []
    for distance, (first, second) in _within(fabric, tuple(row.cells)):
        a, b = row.cells[first], row.cells[second]
        y = a.y if row.has_inner_above else a.bottom
        reach = (a.width / 2 - 14) / distance
        x, to, top = a.middle + reach, b.middle - reach, y + side * (distance * _ARC + 2)
        bend = y + (top - y) * 4 / 3
        d = f"M{x:.1f} {y:g}C{x:.1f} {bend:.1f} {to:.1f} {bend:.1f} {to:.1f} {y:g}"
        yield _line(fabric, first, second, d)
        labels.append(_label(fabric, (first, second), "inside", (x + to) / 2, top))
    yield from labels


def _bridges(fabric: NvlinkFabric, rows: Sequence[_Row]) -> Iterator[Markup]:
    """Yield the lines of a mesh from row to row and, where nothing lies between, their labels."""
    labels = []
    for upper, lower in combinations(rows, 2):
        for first, second in ((a, b) for a in upper.cells for b in lower.cells):
            if _ordered(first, second) not in fabric.nvlink:
                continue
            a, b = upper.cells[first], lower.cells[second]
            d = f"M{a.middle:g} {a.bottom:g}L{b.middle:g} {b.y:g}"
            yield _line(fabric, first, second, d)
            x = a.middle + (b.middle - a.middle) * _BRIDGE_LABEL
            y = a.bottom + (b.y - a.bottom) * _BRIDGE_LABEL
            labels.append(_label(fabric, (first, second), "between", x, y))
    yield from labels if len(rows) == _FACING else ()


def _others(fabric: NvlinkFabric, rows: Sequence[_Row]) -> Iterator[Markup]:
    """Yield what joins the pairs of two facing rows that have no NVLink."""
    upper, lower = (list(row.cells.values()) for row in rows)
    if len(upper) > 1:
        middle = len(upper) // 2
        x = (upper[middle - 1].right + upper[middle].x) / 2
        top, bottom = upper[0].bottom + _inset(fabric), lower[0].y - _inset(fabric)
        yield rail("pcie", top, [(x, bottom)])
        yield pill("pcie", x, top + (bottom - top) * 0.66, fabric.word)
