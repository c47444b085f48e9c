from dataclasses import replace

import pytest
from conftest import JobMaker

from planner.advice.confidence import confidence
from planner.advice.plan import make_plan
from planner.search.candidate import Candidate


def reaching(candidate: Candidate, share: float) -> Candidate:
    """Return the candidate with a range that reaches so far up."""
    step = candidate.step_time
    return replace(candidate, step_time=replace(step, high_seconds=step.step_seconds * (1 + share)))


@pytest.mark.parametrize(("share", "level"), [(0.2, "high"), (0.5, "medium"), (2.0, "low")])
def test_the_further_a_range_reaches_the_less_is_believed(
    make_job: JobMaker, share: float, level: str
) -> None:
    plan = make_plan(make_job("gpt2", gpus=4))
    found = confidence(plan.job, reaching(plan.chosen, share))
    assert found.level == level
    assert f"up to {share:.0%} longer" in found.reason


def test_the_doubt_is_where_the_spread_times_the_seconds_is_largest(make_job: JobMaker) -> None:
    plan = make_plan(make_job("gpt2", gpus=4))
    doubts = {t.name: t.spread * t.amount for t in plan.chosen.step_time.terms}
    assert max(doubts, key=lambda name: float(doubts[name])) == "backward"
    assert "of the doubt in backward" in plan.confidence.reason


def test_assumed_wires_are_named(make_job: JobMaker) -> None:
    assumed = make_plan(make_job("gpt2", gpus=4, cluster={"nodes": 2}))
    assert assumed.confidence.reason.endswith("the wires are assumed")
    alone = make_plan(make_job("gpt2", gpus=1))
    assert "wires" not in alone.confidence.reason
