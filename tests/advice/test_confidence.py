from dataclasses import replace

import pytest
from conftest import JobMaker

from planner.advice import confidence as confidences
from planner.advice.confidence import confidence, confidence_in_brief
from planner.advice.plan import make_plan
from planner.catalog.published_runs import source_names
from planner.core.units import format_fraction
from planner.domain.cluster import Provenance
from planner.search.candidate import Candidate
from planner.step_time.doubt import Cause


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


def test_what_the_nearest_runs_are_off_by_stands_beside_it(make_job: JobMaker) -> None:
    plan = make_plan(make_job("gpt2", gpus=4))
    like = plan.confidence.like
    assert like is not None
    assert (like.kind, like.framework) == ("decoders", "torch")
    within = format_fraction(like.within)
    assert all(each in plan.confidence.reason for each in (like.words, within))
    assert f"planner accuracy --source {like.sources[0]}" in plan.confidence.reason
    assert set(like.sources) <= set(source_names())


@pytest.mark.parametrize(
    ("within", "level"), [(0.2, "high"), (0.49, "medium"), (0.9, "low"), (None, "medium")]
)
def test_a_plan_is_believed_no_more_than_the_nearest_runs(
    make_job: JobMaker, monkeypatch: pytest.MonkeyPatch, within: float | None, level: str
) -> None:
    plan = make_plan(make_job("gpt2", gpus=4))
    like = plan.confidence.like
    assert like is not None
    off = None if within is None else replace(like, within=within)
    monkeypatch.setattr(confidences, "nearest_runs", lambda *_: off)
    found = confidence(plan.job, reaching(plan.chosen, 0.1))
    assert found.level == level
    assert (like.words in found.reason) == (within is not None)


def test_the_doubt_is_where_the_half_width_is_largest(make_job: JobMaker) -> None:
    plan = make_plan(make_job("gpt2", gpus=4))
    doubts = {cause: float(width) for cause, width in plan.chosen.step_time.doubts.items()}
    assert max(doubts, key=doubts.__getitem__) == Cause.MEMORY_BOUND
    assert confidences.CAUSES[Cause.MEMORY_BOUND] in plan.confidence.reason
    assert not any(
        words in plan.confidence.reason
        for cause, words in confidences.CAUSES.items()
        if cause != Cause.MEMORY_BOUND
    )


def test_a_release_that_nobody_named_is_a_reason(make_job: JobMaker) -> None:
    recipe = {"framework": "megatron"}
    unknown = make_plan(make_job("gpt2", gpus=4, recipe=recipe)).confidence.reason
    known = make_plan(
        make_job("gpt2", gpus=4, recipe={**recipe, "framework_version": "2022-03"})
    ).confidence.reason
    assert "--framework-version" in unknown
    assert "--framework-version" not in known
    without = make_plan(make_job("gpt2", gpus=4)).confidence.reason
    assert "--framework-version" not in without


def test_assumed_wires_are_named(make_job: JobMaker) -> None:
    assumed = make_plan(make_job("gpt2", gpus=4, cluster={"nodes": 2}))
    words = confidences.LINKS[Provenance.ASSUMED]
    assert words in assumed.confidence.reason
    alone = make_plan(make_job("gpt2", gpus=1))
    assert not any(each in alone.confidence.reason for each in confidences.LINKS.values())


def test_in_brief_stands_what_sets_the_level(make_job: JobMaker) -> None:
    plan = make_plan(make_job("gpt2", gpus=4))
    like = plan.confidence.like
    assert like is not None
    assert like.words in confidence_in_brief(plan.job, reaching(plan.chosen, 0.2))
    wide = confidence_in_brief(plan.job, reaching(plan.chosen, 2.0))
    assert like.words not in wide
    assert "200 %" in wide
    assert confidences.CAUSES[Cause.MEMORY_BOUND] in wide
