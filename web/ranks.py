"""Which rank stands where: a row per node, a column per GPU, a colour per stage.

Neighbours of a stage are one stroke, each group of ranks one outline, and nodes that are alike one row,
so that thousands of GPUs stay a small picture.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from markupsafe import Markup

from planner.hardware.placement import RankGrid
from web.drawing import BAR, ROW, Scale, row_middle, rows_picture, shape, stretched, text

_MOST_ROWS = 32
"""That are drawn; of more, the first."""
_CELL = 10
"""Steps of the width that a GPU takes."""
_COLOURS = "abcdefhijklm"
_LABELS_PERCENT = 14
_MOST_NUMBERED = 16
"""GPUs of a row that are numbered."""
_INNERMOST = ("tensor", "context", "expert")
"""Kinds of groups, of which the first that there is is outlined: neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Neighbours in a row that have something in common."""

    row: int
    first: int
    """GPU of the row."""
    size: int
    stage: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A node, and those behind it that look alike."""

    index: int
    node: int
    nodes: int

    @property
    def name(self) -> str:
        last = self.node + self.nodes - 1
        return f"{self.node}-{last}" if self.nodes > 1 else f"node {self.node}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksPicture:
    """The picture, and what is said of it."""

    drawing: Markup
    has_alike: bool
    """Whether a row is several nodes."""
    left_out: int
    """Nodes that are not drawn."""


def draw_ranks(grid: RankGrid) -> RanksPicture:
    """Return the picture of all nodes, or of the first of many that differ."""
    columns, kind = grid.gpus_per_node, outlined(grid)
    of_a_group = getattr(grid, kind) if kind else 1
    shown = list(islice(_rows(grid, of_a_group), _MOST_ROWS))
    stages = list(_runs(grid, shown, _ranks_of_a_stage(grid)))
    groups = _runs(grid, shown, of_a_group) if kind else ()
    height, drawn = len(shown) * ROW, shown[-1].node + shown[-1].nodes
    outlines = shape("path", css="group", d="".join(map(_outline, groups)))
    drawing = rows_picture(
        "ranks",
        _label(grid, drawn, kind),
        [row.name for row in shown],
        stretched(_LABELS_PERCENT, height, (columns * _CELL, height), *_strokes(stages), outlines),
        *_numbers(stages, columns),
        *_axis(grid, height),
    )
    return RanksPicture(
        drawing=drawing,
        has_alike=any(row.nodes > 1 for row in shown),
        left_out=num_nodes(grid) - drawn,
    )


def num_nodes(grid: RankGrid) -> int:
    """Return how many nodes there are."""
    return -(-grid.world_size // grid.gpus_per_node)


def outlined(grid: RankGrid) -> str:
    """Return the kind of groups that are outlined; "" where no neighbours form one."""
    return next((kind for kind in _INNERMOST if getattr(grid, kind) > 1), "")


def _label(grid: RankGrid, nodes: int, kind: str) -> str:
    every = num_nodes(grid)
    drawn = f"{nodes:,} of {every:,}" if every > nodes else f"{nodes:,}"
    groups = f", {kind} groups of {getattr(grid, kind)} outlined" if kind else ""
    return f"Pipeline stages on {drawn} x {grid.gpus_per_node} GPUs{groups}"


def _ranks_of_a_stage(grid: RankGrid) -> int:
    return grid.tensor * grid.context * grid.data


def _rows(grid: RankGrid, of_a_group: int) -> Iterator[_Row]:
    """Yield the rows from the first node on: those within one stage are one where their groups lie alike.

    Args:
        grid: of all ranks.
        of_a_group: ranks that are outlined together.
    """
    columns, nodes = grid.gpus_per_node, num_nodes(grid)
    is_regular = columns % of_a_group == 0
    index = node = 0
    while node < nodes:
        stage = node * columns // _ranks_of_a_stage(grid)
        whole = (stage + 1) * _ranks_of_a_stage(grid) // columns - node
        alike = max(1, whole) if is_regular else 1
        yield _Row(index=index, node=node, nodes=alike)
        index, node = index + 1, node + alike


def _runs(grid: RankGrid, shown: list[_Row], block: int) -> Iterator[_Run]:
    """Yield the neighbours of each row that are of one block of so many consecutive ranks."""
    columns = grid.gpus_per_node
    for row in shown:
        begin = row.node * columns
        rank, end = begin, min(begin + columns, grid.world_size)
        while rank < end:
            behind = min((rank // block + 1) * block, end)
            yield _Run(
                row=row.index,
                first=rank - begin,
                size=behind - rank,
                stage=rank // _ranks_of_a_stage(grid),
            )
            rank = behind


def _strokes(runs: list[_Run]) -> Iterator[Markup]:
    """Yield a path per colour: the runs of its stages."""
    by_colour: dict[str, list[str]] = {}
    for run in runs:
        stroke = f"M{run.first * _CELL} {row_middle(run.row)}h{run.size * _CELL}"
        by_colour.setdefault(_COLOURS[run.stage % len(_COLOURS)], []).append(stroke)
    for colour, strokes in by_colour.items():
        yield shape("path", css=f"part-{colour}", d="".join(strokes))


def _outline(run: _Run) -> str:
    width = run.size * _CELL - 1
    return f"M{run.first * _CELL + 0.5} {run.row * ROW + 1}h{width}v{BAR - 2}h{-width}z"


def _numbers(runs: list[_Run], columns: int) -> Iterator[Markup]:
    scale = Scale(most=columns, start=_LABELS_PERCENT)
    for run in runs:
        yield text(run.stage, scale.percent(run.first + run.size / 2), row_middle(run.row))


def _axis(grid: RankGrid, height: int) -> Iterator[Markup]:
    """Yield the GPU below each column, as the node counts them."""
    columns = grid.gpus_per_node
    scale = Scale(most=columns, start=_LABELS_PERCENT)
    for column in range(columns if columns <= _MOST_NUMBERED else 0):
        _, gpu = grid.place(column)
        yield text(gpu, scale.percent(column + 0.5), height + 10, "tick")
