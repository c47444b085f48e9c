"""Times over a link of 10 GB/s with 20 us of latency, worked by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cluster import Link, Provenance
from planner.collectives import all_gather, all_reduce, reduce_scatter

LINK = Link(
    name="test",
    bytes_per_second=10e9,
    latency_seconds=20e-6,
    provenance=Provenance.MEASURED,
    source="this test",
)


def test_an_all_reduce_moves_the_tensor_nearly_twice() -> None:
    # 4 ranks, 1 GB: 2 * 3/4 * 1 GB / 10 GB/s = 0.15 s, and one latency.
    assert all_reduce(LINK, 4, 1e9) == pytest.approx(0.15 + 20e-6)


def test_its_halves_move_it_nearly_once() -> None:
    # 8 ranks, 2 GB: 7/8 * 2 GB / 10 GB/s = 0.175 s.
    assert all_gather(LINK, 8, 2e9) == pytest.approx(0.175 + 20e-6)
    assert reduce_scatter(LINK, 8, 2e9) == pytest.approx(0.175 + 20e-6)


def test_every_operation_pays_its_latency() -> None:
    # 2 ranks, 1 MB in 10 buckets: 2 * 1/2 * 1 MB / 10 GB/s = 100 us, and 10 * 20 us.
    assert all_reduce(LINK, 2, 1e6, operations=10) == pytest.approx(300e-6)


@pytest.mark.parametrize("collective", [all_reduce, all_gather, reduce_scatter])
def test_one_rank_moves_nothing(collective: object) -> None:
    assert callable(collective)
    assert collective(LINK, 1, 1e9) == LINK.latency_seconds
    assert collective(LINK, 1, 1e9, operations=0) == 0


@given(ranks=st.integers(1, 4096), size=st.floats(0, 1e12))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(ranks: int, size: float) -> None:
    whole = all_reduce(LINK, ranks, size, operations=2)
    halves = reduce_scatter(LINK, ranks, size) + all_gather(LINK, ranks, size)
    assert whole == pytest.approx(halves)


@given(ranks=st.integers(1, 4096), size=st.floats(1, 1e12))
def test_more_ranks_or_bytes_never_take_less_time(ranks: int, size: float) -> None:
    time = all_reduce(LINK, ranks, size)
    assert all_reduce(LINK, ranks + 1, size) >= time
    assert all_reduce(LINK, ranks, 2 * size) >= time


@pytest.mark.parametrize("collective", [all_reduce, all_gather, reduce_scatter])
def test_columns_give_columns(collective: object) -> None:
    assert callable(collective)
    ranks, sizes, operations = np.array([1, 4, 8]), np.array([1e6, 1e9, 2e9]), np.array([1, 2, 3])
    column = collective(LINK, ranks, sizes, operations)
    rows = [
        collective(LINK, *row)
        for row in zip(ranks.tolist(), sizes.tolist(), operations.tolist(), strict=True)
    ]
    assert column.tolist() == pytest.approx(rows)
