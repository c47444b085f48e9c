"""What was timed on the user's own machine, between and beyond its points, by hand."""

from dataclasses import replace

import numpy as np
import pytest
from made_clusters import cluster, link

from planner.collectives.operations import all_gather, all_reduce
from planner.collectives.timed import is_timed, known_or_timed_slowdown, timed_seconds
from planner.domain.cluster import Group
from planner.domain.timed import TimedCollective

CURVE = TimedCollective(
    operation="all_reduce",
    ranks=4,
    ranks_in_node=4,
    sizes_bytes=(1e6, 4e6),
    seconds=(1e-3, 9e-3),
    slowdown=0.3,
)
BETWEEN = replace(CURVE, ranks=16, ranks_in_node=8, seconds=(2e-3, 6e-3), slowdown=0.7)
NODES = cluster(4, timed_collectives=(CURVE, BETWEEN))


@pytest.mark.parametrize(
    ("size", "seconds"),
    [
        (1e6, 1e-3),
        (2e6, 3e-3),  # half of the way in logarithms: the root of 1 x 9
        (4e6, 9e-3),
        (8e6, 18e-3),  # the largest one's bandwidth
        (40e6, 90e-3),
        (1e5, 1e-3),  # the smallest one's seconds
        (0.0, 1e-3),
    ],
)
def test_seconds_are_linear_in_logarithms_between_the_points(size: float, seconds: float) -> None:
    assert timed_seconds(CURVE, size) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("ranks", "stride", "seconds"),
    [
        (4, 1, 3e-3),
        (16, 1, 2e-3 * 3**0.5),
        (16, 2, None),  # half of each node's ranks: their likes share the network
        (4, 2, None),  # a group of every other rank sees another link
        (2, 1, None),
        (8, 1, None),
    ],
)
def test_groups_in_number_and_place_as_timed_take_its_seconds(
    ranks: int, stride: int, seconds: float | None
) -> None:
    strided = replace(NODES, group_links={(4, 2): link(5)})
    group = Group(ranks=ranks, stride=stride)
    found = all_reduce(strided, group, 2e6)
    untimed = all_reduce(replace(strided, timed_collectives=()), group, 2e6)
    assert found == pytest.approx(untimed if seconds is None else seconds)
    assert is_timed(strided, group) == (seconds is not None)
    assert all_gather(strided, group, 2e6) == all_gather(
        replace(strided, timed_collectives=()), group, 2e6
    )


def test_rows_take_what_was_timed_of_their_own_groups() -> None:
    ranks = np.array([2, 4, 8, 16, 32])
    found = all_reduce(NODES, Group(ranks=ranks, stride=1), 2e6)
    alone = [all_reduce(NODES, Group(ranks=int(n), stride=1), 2e6) for n in ranks]
    assert np.asarray(found).tolist() == pytest.approx(alone)


def test_slowdowns_are_those_of_like_groups() -> None:
    group = Group(ranks=np.array([2, 4, 16, 16]), stride=np.array([1, 1, 1, 2]))
    found = known_or_timed_slowdown(NODES, group, "all_reduce", 0.1)
    assert np.asarray(found).tolist() == [0.1, 0.3, 0.7, 0.1]
    assert known_or_timed_slowdown(NODES, group, "all_gather", 0.1) == 0.1
    silent = replace(NODES, timed_collectives=(replace(CURVE, slowdown=None),))
    assert known_or_timed_slowdown(silent, group, "all_reduce", 0.1) == 0.1
