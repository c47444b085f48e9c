"""The published runs that are nearest to a plan."""

from typing import Any

import pytest

from planner import answers
from planner.accuracy.evidence import evidence_table, nearest_evidence
from planner.advice.confidence import likeness
from planner.request.schema import parse_request


def suggested(asked: dict[str, Any]) -> Any:
    _, plan = answers.suggest(parse_request(asked), allow_paths=False)
    return plan


@pytest.mark.parametrize(
    ("model", "gpu", "recipe"),
    [
        ("gpt2", "a100-sxm-80gb", {}),
        ("google-bert/bert-large-uncased", "h100-sxm-80gb", {}),
        ("meta-llama/Llama-3.1-8B", "h100-sxm-80gb", {"method": "lora"}),
    ],
)
def test_the_nearest_runs_are_three_of_those_that_say_how_sure_a_plan_is(
    model: str, gpu: str, recipe: dict[str, Any]
) -> None:
    plan = suggested({"model": model, "cluster": {"gpu": gpu}, "recipe": recipe})
    like, found = likeness(plan.job, plan.chosen), nearest_evidence(plan.job, plan.chosen)
    assert like
    assert len(found) == 3
    assert {each.source for each in found} <= set(like.sources)
    assert {each.nature.kind for each in found} == {like.kind}
    for each, row in zip(found, evidence_table(found).rows, strict=True):
        assert like.gpu in {"", each.gpu}
        error = each.compared.step_seconds / each.seconds - 1
        assert row.cells[-2:] == (f"{round(100 * error):+d} %", each.source)
    assert len({row.cells[:3] + row.cells[-1:] for row in evidence_table(found).rows}) == 3


def test_the_model_itself_is_nearest_where_it_was_published() -> None:
    plan = suggested({"model": "gpt2", "cluster": {"gpu": "h100-sxm-80gb"}})
    nearest, *_ = nearest_evidence(plan.job, plan.chosen)
    assert (nearest.model, nearest.machine) == ("gpt2", "1 x h100-sxm-80gb")


def test_pairs_have_no_published_run() -> None:
    plan = suggested({"model": "gpt2", "recipe": {"job": "dpo"}})
    assert nearest_evidence(plan.job, plan.chosen) == ()
