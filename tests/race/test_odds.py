import math
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proof.measured import table

from planner.catalog.choice import leads
from planner.race.odds import (
    FEWEST,
    OPEN,
    STARTS_APART,
    better_half,
    interval,
    is_behind,
    is_within_starts,
    may_gain,
    odds_of_lead,
)

_SPREAD_OF_FIVE = 2.326
"""Expected difference between the largest and the least of five normal numbers, in standard deviations."""
FEW = st.lists(st.floats(1e-3, 1e3), max_size=4)
SECONDS = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=60)


@given(SECONDS)
def test_the_interval_holds_the_median_and_lies_within_the_steps(seconds: list[float]) -> None:
    found = interval(seconds)
    assert found.low <= found.median <= found.high
    assert found.median == median(seconds)
    if len(seconds) >= FEWEST:
        assert {found.low, found.high} <= {*seconds}
    else:
        assert (found.low, found.high) == (0.0, math.inf)


@pytest.mark.parametrize(
    ("steps", "places"), [(6, (1, 6)), (9, (2, 8)), (20, (6, 15)), (100, (40, 61))]
)
def test_it_misses_one_time_in_twenty_as_tables_of_the_sign_test_have_it(
    steps: int, places: tuple[int, int]
) -> None:
    found = interval(range(1, steps + 1))
    assert (found.low, found.high) == places


def test_a_median_is_known_to_2_percent() -> None:
    assert interval([1.0, 0.99, 1.01, 1.0, 1.019, 0.985]).is_known
    assert not interval([1.0, 0.97, 1.01, 1.0, 1.02, 0.985]).is_known
    assert not interval([1.0] * 5).is_known


@given(SECONDS, st.floats(1e-3, 1e3))
def test_who_is_behind_has_a_median_above_the_best(seconds: list[float], best: float) -> None:
    if is_behind(seconds, best):
        assert median(seconds) > best
    assert not is_behind([], best)
    assert is_behind(seconds, best) is is_behind([2 * each for each in seconds], 2 * best)


def test_starts_are_as_far_apart_as_the_proof_on_cores_found_them() -> None:
    found = table()
    rows = (dict(zip(found["columns"], row, strict=True)) for row in found["rows"])
    apart = [
        (row["high_s"] - row["low_s"]) / row["step_s"] / _SPREAD_OF_FIVE
        for row in rows
        if row["repetitions"] == 5
    ]
    assert median(apart) == pytest.approx(STARTS_APART, abs=5e-4)


def test_more_starts_tell_closer_plans_apart_and_gpus_need_one() -> None:
    assert [is_within_starts(1.07, 1.0, starts, on_cpus=True) for starts in (1, 2, 3)] == [
        True,
        False,
        False,
    ]
    assert [is_within_starts(1.04, 1.0, starts, on_cpus=True) for starts in (1, 2)] == [True, True]
    assert not is_within_starts(1.0, 1.0, 1, on_cpus=False)


def test_two_steps_far_behind_are_enough() -> None:
    assert is_behind([1.6, 1.7], 1.0)
    assert not is_behind([1.6], 1.0)
    assert not is_behind([1.4] * 5, 1.0)
    assert is_behind([1.4] * 6, 1.0)


@given(st.dictionaries(st.sampled_from("abcdefg"), FEW))
def test_halving_keeps_the_fastest_and_half_of_all(seconds: dict[str, list[float]]) -> None:
    kept = better_half(seconds)
    assert len(kept) == math.ceil(len(seconds) / 2)
    slowest = max((median(seconds[name] or [math.inf]) for name in kept), default=0.0)
    assert all(median(seconds[name] or [math.inf]) >= slowest for name in {*seconds} - {*kept})


@given(st.floats(0.01, 100), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_lead_leaves_less_to_gain(fastest: float, lead: float, more: float) -> None:
    near, far = (may_gain("torch", [fastest, fastest * (1 + each)]) for each in (lead, lead + more))
    assert 0 <= far <= near + 1e-9
    assert may_gain("torch", [fastest]) == 0


def test_a_tie_may_differ_by_what_published_pairs_do() -> None:
    assert may_gain("torch", [1.0, 1.0]) == pytest.approx(0.18, abs=0.03)
    assert may_gain("torch", [1.0, 1.5]) == 0


def test_odds_are_those_of_published_pairs() -> None:
    for band in leads("megatron"):
        slower = 1 + band.from_fraction + 1e-6
        assert odds_of_lead("megatron", 1.0, slower) == band.real_share
    assert odds_of_lead("torch", 1.0, 1.0) < OPEN < odds_of_lead("torch", 1.0, 2.0)
