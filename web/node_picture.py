"""A node's wiring -> a picture and what is said of it.

Islands of NVLink are boxes, NUMA nodes bands behind the GPUs, network adapters chips beside them. Rails
carry the name of what they are; lines of a mesh their number of links. The picture is as narrow as a
telephone, and scaled as a whole: beside its legend where there is room.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

from planner.domain.cluster import Cluster
from planner.hardware.placement import cuda_visible_devices
from planner.report.cluster import rings_table
from web.drawing import shape, text
from web.node_fabric import draw_fabric
from web.node_shapes import CHARACTER, PADDING, PILL, Block, Box, chips, pill, rail, rectangle
from web.node_text import describe, legend, title
from web.node_tree import Near, Node, NodePart, NvlinkFabric, PcieGroup, node_tree

_WIDTH = 308
_EDGE = 6
_LARGER = 1.25
"""Than on a telephone, where there is room."""
_LINE_GAP = 12
"""Between blocks of a row."""
_LABEL = 16
"""Height of a NUMA node's name."""


def wiring(cluster: Cluster) -> dict[str, Any] | None:
    """Return how a node is wired and what that is worth to its ranks, if a topology was read."""
    if cluster.topology is None:
        return None
    order = cluster.gpu_order or tuple(range(cluster.gpus_per_node))
    node = node_tree(cluster.topology, order)
    return {
        "title": title(node),
        "picture": draw_node(node),
        "legend": tuple(legend(node)),
        "rings": rings_table(cluster.group_links, cluster.gpus_per_node),
        "order": [f"GPU{gpu}" for gpu in order],
        "devices": cuda_visible_devices(order),
        "findings": cluster.topology.findings,
    }


def draw_node(node: Node) -> Markup:
    """Return the picture of a node, with its facts in words for who does not see it."""
    block = _part(node, node.root, None, _WIDTH)
    width, height = (round(length + 2 * _EDGE) for length in (block.width, block.height))
    return shape(
        "svg",
        shape("title", title(node), id="node-title"),
        shape("desc", " ".join(describe(node)), id="node-facts"),
        block.at(_EDGE, _EDGE),
        css="drawing node",
        role="img",
        aria_labelledby="node-title node-facts",
        width=_LARGER * width,
        viewBox=f"0 0 {width} {height}",
    )


def _part(node: Node, part: NodePart, around: NodePart | None, width: float) -> Block:
    """Return a part, on its band and with its adapters if what is around it has none."""
    numa, near = node.numa(part.gpus), node.near(part.gpus)
    has_band = numa is not None and not (around and node.numa(around.gpus) is not None)
    has_chips = near is not None and not (around and node.near(around.gpus) is not None)
    width -= 2 * PADDING if has_band else 0
    if isinstance(part, NvlinkFabric):
        block = draw_fabric(node, part)
    else:
        blocks = [_part(node, inner, part, width) for inner in part.parts]
        block = _stacked(_fitted(blocks, width), part.word)
    if near and has_chips:
        block = _with_chips(block, near)
    if numa is not None and has_band:
        return _with_band(block, numa)
    is_wrapped = isinstance(part, PcieGroup) and around is not None and block.rows > 1
    return _with_frame(block) if is_wrapped else block


def _width_of(row: Sequence[Block]) -> float:
    return sum(block.width for block in row) + _LINE_GAP * (len(row) - 1)


def _fitted(blocks: Sequence[Block], width: float) -> list[Sequence[Block]]:
    for count in range(1, len(blocks)):
        wide = -(-len(blocks) // count)
        rows = [blocks[first : first + wide] for first in range(0, len(blocks), wide)]
        if all(_width_of(row) <= width for row in rows):
            return rows
    return [[block] for block in blocks]


def _stacked(rows: Sequence[Sequence[Block]], word: str) -> Block:
    """Return blocks in rows, joined by rails: between the rows, or under the only one."""
    width, y = max(map(_width_of, rows)), 0.0
    placed: list[list[Box]] = []
    shapes = []
    for row in rows:
        x, boxes = (width - _width_of(row)) / 2, []
        for block in row:
            boxes.append(Box(x=x, y=y, width=block.width, height=block.height))
            shapes.append(block.at(x, y))
            x += block.width + _LINE_GAP
        placed.append(boxes)
        y = max(box.bottom for box in boxes) + 2 * PILL
    lower = placed[1:] or [[]]
    rails = (
        shape_
        for joined in zip(placed, lower, strict=False)
        for shape_ in _joint(*joined, width, word)
    )
    height = y - PILL / 2 if len(placed) == 1 else y - 2 * PILL
    return Block(
        width=width, height=height, rows=len(rows), inside=Markup().join([*rails, *shapes])
    )


def _joint(upper: Sequence[Box], lower: Sequence[Box], width: float, word: str) -> Iterator[Markup]:
    y = max(box.bottom for box in upper) + PILL
    ends = [(box.middle, box.bottom) for box in upper] + [(box.middle, box.y) for box in lower]
    yield rail("pcie", y, ends)
    yield pill("pcie", width / 2, y, word)


def _with_chips(block: Block, near: Near) -> Block:
    below = chips(near, block.width)
    return Block(
        width=block.width,
        height=block.height + below.height,
        inside=block.inside + below.at(0, block.height),
    )


def _with_band(block: Block, numa: int) -> Block:
    words = f"NUMA {numa}"
    width = max(block.width, len(words) * CHARACTER) + 2 * PADDING
    height = block.height + PADDING + _LABEL + 4
    band = rectangle("numa", Box(x=0, y=0, width=width, height=height), 10)
    label = text(words, width / 2, height - _LABEL / 2 - 2, "numa")
    inside = band + block.at((width - block.width) / 2, PADDING) + label
    return Block(width=width, height=height, inside=inside)


def _with_frame(block: Block) -> Block:
    box = Box(x=0, y=0, width=block.width + 2 * PADDING, height=block.height + 2 * PADDING)
    inside = rectangle("frame", box, 10) + block.at(PADDING, PADDING)
    return Block(width=box.width, height=box.height, inside=inside)
