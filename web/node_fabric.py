"""GPUs that NVLink joins -> where their cells lie: rows, with room for lines and adapters."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby, pairwise

from planner.hardware.topology import Pair
from web.node_shapes import PADDING, PILL, Block, Box, around, chips
from web.node_tree import Node, NvlinkFabric

CELL_HEIGHT = 34
LABEL = 18
"""Height of a NUMA node's name."""
_ISLAND_GAP = 3 * PADDING
ARC = 17
"""Height of an arc for each GPU that it reaches further."""
ARC_FOOT = 12
_SHARED_ROW = 4
"""GPUs up to which small islands of a mesh share a row."""
_MOST_LINES = 120
"""Of a mesh; with more, a word says how many links there are."""
_FACING_GAP = 60
_FACING = 2
"""Rows that face each other, so that what joins them meets nothing on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a drawing has room for."""

    width: int
    columns: int
    cell_width: int
    gap: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Neighbours of a row that share something."""

    gpus: tuple[int, ...]
    box: Box


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """GPUs side by side, with what lies over and under them."""

    cells: dict[int, Box]
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

    def runs(self, key: Callable[[int], object]) -> list[Neighbours]:
        """Return the neighbours with the same key."""
        split = [tuple(neighbours) for _, neighbours in groupby(self.cells, key)]
        return [
            Neighbours(gpus=gpus, box=around([self.cells[gpu] for gpu in gpus])) for gpus in split
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Where the GPUs of a fabric lie.

    What all of them share (NUMA node, adapters) is drawn around the whole and not here.
    """

    node: Node
    fabric: NvlinkFabric
    size: Size

    @property
    def inset(self) -> int:
        """Return the room between an island's box and its GPUs."""
        return PADDING if self.fabric.nvlink else 0

    @property
    def has_lines(self) -> bool:
        """Return whether each pair has a line of its own."""
        return not self.fabric.is_uniform and 0 < len(self.fabric.nvlink) <= _MOST_LINES

    @property
    def is_facing(self) -> bool:
        """Return whether two rows face each other."""
        return len(self._split()) == _FACING

    @property
    def left(self) -> int:
        """Return the room left of the GPUs; more where a trunk joins the rails of several rows."""
        has_trunk = self.fabric.is_uniform and len(self._split()) > _FACING
        return self.inset + (2 * PADDING if has_trunk else 0)

    def rows(self) -> Iterator[GpuRow]:
        """Yield the rows from top to bottom."""
        split, y = self._split(), 0.0
        widest = max(map(self._width, split))
        for number, gpus in enumerate(split):
            is_first_of_two = self.is_facing and number == 0
            inner, outer = self._inner(gpus), self._outer(gpus)
            has_inner_above = is_first_of_two or not self.is_facing
            y += self.inset
            y += (inner if has_inner_above else 0) + (outer if is_first_of_two else 0)
            yield GpuRow(
                cells=self._cells(gpus, self.left + (widest - self._width(gpus)) / 2, y),
                inner=inner,
                outer=outer,
                has_inner_above=has_inner_above,
                has_outer_above=is_first_of_two,
            )
            y += CELL_HEIGHT + self.inset
            y += (0 if has_inner_above else inner) + (0 if is_first_of_two else outer)
            y += (_FACING_GAP if self.has_lines else 2 * PILL) if is_first_of_two else PADDING

    def within(self, gpus: Sequence[int]) -> Iterator[tuple[int, Pair]]:
        """Yield the pairs of a row that have a line, each with its distance, the farthest first."""
        places = combinations(enumerate(gpus), 2)
        far_first = sorted(places, key=lambda pair: pair[0][0] - pair[1][0])
        for (place, first), (other_place, second) in far_first:
            if self.has_lines and ordered(first, second) in self.fabric.nvlink:
                yield other_place - place, (first, second)

    def chips(self, run: Neighbours) -> Block | None:
        """Return the adapters of neighbours, where not all GPUs of the fabric share them."""
        near = self.node.near(run.gpus)
        if near is None or self.node.near(self.fabric.gpus) is not None:
            return None
        return chips(near, run.box.width)

    def numa(self, run: Neighbours) -> int | None:
        """Return the NUMA node of neighbours, where not all GPUs of the fabric share it."""
        is_shared = self.node.numa(self.fabric.gpus) is not None
        return None if is_shared else self.node.numa(run.gpus)

    def _split(self) -> list[tuple[int, ...]]:
        rows: list[tuple[int, ...]] = []
        for island in self.fabric.islands:
            count = -(-len(island) // self.size.columns)
            wide = -(-len(island) // count)
            if rows and len(rows[-1]) + len(island) <= _SHARED_ROW:
                rows[-1] = (*rows[-1], *island)
            else:
                rows += [island[first : first + wide] for first in range(0, len(island), wide)]
        return rows

    def _inner(self, gpus: Sequence[int]) -> float:
        if self.fabric.is_uniform:
            return 0 if self.is_facing else PILL + PADDING
        farthest = max((distance for distance, _ in self.within(gpus)), default=0)
        return farthest * ARC + ARC_FOOT if farthest else 0

    def _outer(self, gpus: Sequence[int]) -> float:
        row = GpuRow(
            cells=self._cells(gpus, 0, 0),
            inner=0,
            outer=0,
            has_inner_above=False,
            has_outer_above=False,
        )
        blocks = [self.chips(run) for run in row.runs(self.node.adapters.__getitem__)]
        nodes = [self.numa(run) for run in row.runs(self.node.topology.numa.get)]
        label = LABEL if any(node is not None for node in nodes) else 0
        return max(block.height if block else 0 for block in blocks) + label

    def _cells(self, gpus: Sequence[int], x: float, y: float) -> dict[int, Box]:
        cells = {}
        for gpu, space in zip(gpus, (*self._spaces(gpus), 0), strict=True):
            cells[gpu] = Box(x=x, y=y, width=self.size.cell_width, height=CELL_HEIGHT)
            x += self.size.cell_width + space
        return cells

    def _spaces(self, gpus: Sequence[int]) -> list[int]:
        island_of = {gpu: island for island in self.fabric.islands for gpu in island}
        return [
            self.size.gap if island_of[first] == island_of[second] else _ISLAND_GAP
            for first, second in pairwise(gpus)
        ]

    def _width(self, gpus: Sequence[int]) -> float:
        return len(gpus) * self.size.cell_width + sum(self._spaces(gpus))


def ordered(first: int, second: int) -> Pair:
    """Return two GPUs as a pair."""
    return min(first, second), max(first, second)
