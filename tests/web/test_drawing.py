"""Ticks are round figures, and there are enough of them to read a value by."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from web.drawing import factor_ticks, round_ticks, short


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1.11, 61.8, [2, 5, 10, 20, 50]),
        (6.29, 10.9, [7, 8, 9, 10]),
        (0.4, 900, [1, 10, 100]),
        (1e-6, 1e6, [1e-6, 1e-3, 1, 1e3, 1e6]),
    ],
)
def test_a_logarithmic_axis_has_round_figures(low: float, high: float, ticks: list[float]) -> None:
    assert factor_ticks(low, high) == pytest.approx(ticks)


def test_memory_begins_at_nothing() -> None:
    assert round_ticks(0, 80) == [0, 20, 40, 60, 80]
    assert round_ticks(0, 23.5) == [0, 5, 10, 15, 20]


@given(st.floats(1e-6, 1e6), st.floats(1.01, 1e9))
def test_there_are_a_few_ticks_inside_of_the_range(low: float, factor: float) -> None:
    ticks = factor_ticks(low, low * factor)
    assert 2 <= len(ticks) <= 6
    assert all(low <= tick <= low * factor * (1 + 1e-9) for tick in ticks)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("20.0 GiB", "20 GiB"), ("2.50 s", "2.5 s"), ("800 ms", "800 ms"), ("1.05 s", "1.05 s")],
)
def test_zeros_that_end_decimals_are_left_out(text: str, shown: str) -> None:
    assert short(text) == shown
