"""Rings worked by hand: how many links a GPU sends over at once."""

from itertools import combinations

import pytest

from planner.hardware.nvlink_rings import ring_links

CUBE = {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (4, 5), (4, 6), (4, 7), (5, 6), (5, 7)}
CUBE |= {(6, 7), (0, 4), (1, 5), (2, 6), (3, 7)}
DOUBLE = {(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)}


def _capacities(num_gpus: int, links: dict[tuple[int, int], int]) -> tuple[int, ...]:
    return tuple(links.get(pair, 0) for pair in combinations(range(num_gpus), 2))


def test_a_pair_sends_over_the_links_between_the_two() -> None:
    assert ring_links(2, (4,)) == 4


@pytest.mark.parametrize(("num_gpus", "each", "links"), [(3, 4, 8), (4, 4, 12), (8, 2, 14)])
def test_rings_through_a_clique_use_every_link(num_gpus: int, each: int, links: float) -> None:
    assert ring_links(num_gpus, (each,) * (num_gpus * (num_gpus - 1) // 2)) == links


def test_the_general_way_agrees_with_the_short_one() -> None:
    # One extra link between GPU0 and GPU1 of a clique of five: no other pair can follow it.
    capacities = _capacities(5, dict.fromkeys(combinations(range(5), 2), 3) | {(0, 1): 4})
    assert ring_links(5, capacities) == pytest.approx(ring_links(5, (3,) * 10))


def test_a_quad_of_a_cube_mesh_carries_two_rings_each_way() -> None:
    # 0-1-2-3 and 0-2-1-3; GPU0 and GPU1 have 4 links, GPU2 and GPU3 have one to spare.
    quad = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 2}
    assert ring_links(4, _capacities(4, quad)) == 4


def test_a_cube_mesh_of_eight_uses_all_six_links() -> None:
    cube = {pair: 2 if pair in DOUBLE else 1 for pair in CUBE}
    assert ring_links(8, _capacities(8, cube)) == pytest.approx(6)
    # The double links alone are one ring through all eight, twice.
    assert ring_links(8, _capacities(8, dict.fromkeys(DOUBLE, 2))) == pytest.approx(4)


def test_a_gpu_with_one_neighbour_is_in_no_ring() -> None:
    assert ring_links(3, _capacities(3, {(0, 1): 4, (1, 2): 4})) == 0
    assert ring_links(5, _capacities(5, {p: 1 for p in CUBE if max(p) < 5})) == 0


def test_unequal_meshes_of_more_than_eight_get_no_ring() -> None:
    assert ring_links(9, _capacities(9, {(0, 1): 1})) == 0


def test_a_mesh_with_every_ring_possible_is_solved_too() -> None:
    pairs = list(combinations(range(8), 2))
    capacities = tuple(1 + (3 * a + 5 * b) % 4 for a, b in pairs)
    least = min(
        sum(n for pair, n in zip(pairs, capacities, strict=True) if gpu in pair) for gpu in range(8)
    )
    assert 7 < ring_links(8, capacities) <= least
