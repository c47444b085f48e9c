"""Which rank stands where, as a picture: strokes of stages, outlines of groups."""

import re

import pytest

from planner.hardware.placement import rank_grid
from web.ranks import draw_ranks


def strokes(svg: str) -> list[tuple[str, str]]:
    """Each stroke with its colour."""
    paths = re.findall(r'class="part-(\w)" d="([^"]+)"', svg)
    return [(colour, each) for colour, d in paths for each in re.findall(r"M[^M]+", d)]


def test_a_stage_is_where_its_ranks_are() -> None:
    grid = rank_grid({"tensor": 2, "data": 2, "pipeline": 2}, gpus_per_node=4, nodes=2)
    svg = str(draw_ranks(grid).drawing)
    # Four ranks a stage: the first node has stage 0, the second stage 1.
    assert strokes(svg) == [("a", "M0 9h40"), ("b", "M0 31h40")]
    outlines = re.findall(r'class="group" d="([^"]+)"', svg)[0].split("z")
    assert [each.partition("h")[0] for each in outlines] == [
        "M0.5 1",
        "M20.5 1",
        "M0.5 23",
        "M20.5 23",
        "",
    ]
    assert "tensor groups of 2 outlined" in svg


def test_stages_share_a_node_where_they_are_small() -> None:
    grid = rank_grid({"pipeline": 4, "data": 2}, gpus_per_node=8)
    svg = str(draw_ranks(grid).drawing)
    places = [("a", "M0 9h20"), ("b", "M20 9h20"), ("c", "M40 9h20"), ("d", "M60 9h20")]
    assert strokes(svg) == places
    assert re.findall(r'<text x="[\d.]+%" y="9">(\d)<', svg) == ["0", "1", "2", "3"]
    assert 'class="group" d=""' in svg


@pytest.mark.parametrize("order", [(), (2, 3, 0, 1)])
def test_columns_are_named_as_the_node_counts_its_gpus(order: tuple[int, ...]) -> None:
    grid = rank_grid({"tensor": 4}, gpus_per_node=4, gpu_order=order)
    named = re.findall(r'class="tick"[^>]*>(\d+)<', str(draw_ranks(grid).drawing))
    assert tuple(map(int, named)) == (order or (0, 1, 2, 3))


def test_a_group_over_nodes_is_outlined_in_each() -> None:
    grid = rank_grid({"tensor": 8}, gpus_per_node=4, nodes=2)
    assert str(draw_ranks(grid).drawing).count("h39v16h-39z") == 2


@pytest.mark.parametrize("nodes", [32, 4096])
def test_thousands_of_gpus_are_a_small_picture_of_every_stage(nodes: int) -> None:
    grid = rank_grid(
        {"tensor": 2, "data": nodes // 8, "pipeline": 32}, gpus_per_node=8, nodes=nodes
    )
    picture = draw_ranks(grid)
    svg = str(picture.drawing)
    assert len(svg) <= 10_000
    assert len(strokes(svg)) == 32
    assert f"on {nodes:,} x 8 GPUs" in svg
    assert picture.has_alike == (nodes > 32)
    assert picture.left_out == 0


def test_nodes_of_a_stage_are_one_row_and_those_of_two_their_own() -> None:
    # Stages of 20 GPUs on nodes of 8: nodes 2, 7 and 12 hold the end of one and the start of another.
    grid = rank_grid({"tensor": 2, "data": 10, "pipeline": 4}, gpus_per_node=8, nodes=10)
    picture = draw_ranks(grid)
    names = re.findall(r'class="row-name start"[^>]*>([^<]+)<', str(picture.drawing))
    assert names == ["0-1", "node 2", "3-4", "5-6", "node 7", "8-9"]
    assert picture.has_alike
    first, second, *_ = strokes(str(picture.drawing))
    assert (first, second) == (("a", "M0 9h80"), ("a", "M0 31h40"))


def test_groups_that_lie_otherwise_in_each_node_keep_a_row_for_each() -> None:
    grid = rank_grid({"tensor": 3, "data": 16}, gpus_per_node=8, nodes=6)
    svg = str(draw_ranks(grid).drawing)
    assert svg.count(">node ") == 6


def test_what_is_not_drawn_is_counted() -> None:
    # 20 GPUs a stage, 8 a node: every third row is a node of two stages.
    grid = rank_grid({"tensor": 4, "data": 5, "pipeline": 60}, gpus_per_node=8, nodes=150)
    picture = draw_ranks(grid)
    names = re.findall(r'class="row-name start"[^>]*>([^<]+)<', str(picture.drawing))
    last = int(names[-1].split("-")[-1].removeprefix("node "))
    assert len(names) == 32
    assert picture.left_out == 150 - 1 - last > 0
