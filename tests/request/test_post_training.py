"""Jobs on preferences: what they are called, what they need, where their reference is from."""

from typing import Any

import pytest

from planner.core.errors import InvalidInputError, InvalidRequestError, PlannerError
from planner.request.post_training import reference_model
from planner.request.schema import parse_request, resolve
from planner.request.sections import RecipeRequest


def parsed(**recipe: Any) -> RecipeRequest:
    return parse_request({"model": "gpt2", "recipe": recipe}).recipe


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("DPO", "dpo"), ("ipo", "dpo"), ("cpo", "simpo"), ("rm", "reward"), ("RLOO", "grpo")],
)
def test_a_job_by_the_names_that_tools_have(typed: str, meant: str) -> None:
    assert parsed(job=typed).job == meant


@pytest.mark.parametrize(("typed", "nearest"), [("kto", "dpo"), ("PPO", "grpo"), ("gkd", "dpo")])
def test_what_is_other_arithmetic_is_refused_with_what_is_nearest(typed: str, nearest: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parsed(job=typed)
    assert caught.value.field == "recipe.job"
    assert "not estimated" in caught.value.hint
    assert nearest in caught.value.hint


@pytest.mark.parametrize(
    ("recipe", "meant"),
    [
        ({"job": "dpo"}, "loaded"),
        ({"job": "dpo", "method": "lora"}, "shared"),
        ({"job": "dpo", "method": "lora", "reference_model": "loaded"}, "loaded"),
        ({"job": "dpo", "reference_model": "precompute_ref_log_probs"}, "precomputed"),
        ({"job": "simpo"}, None),
        ({"job": "orpo", "reference_model": "none"}, None),
        ({"job": "reward"}, None),
        ({}, None),
    ],
)
def test_where_the_reference_is_from(recipe: dict[str, Any], meant: str | None) -> None:
    assert reference_model(parsed(**recipe)) == meant


@pytest.mark.parametrize(
    ("recipe", "hint"),
    [
        ({"job": "dpo", "reference_model": "none"}, "simpo"),
        ({"job": "dpo", "reference_model": "shared"}, "lora"),
        ({"job": "orpo", "reference_model": "loaded"}, "leave"),
        ({"job": "reward", "reference_model": "precomputed"}, "leave"),
        ({"reference_model": "loaded"}, "leave"),
    ],
)
def test_a_reference_that_the_job_or_its_method_rules_out(
    recipe: dict[str, Any], hint: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        reference_model(parsed(**recipe))
    assert caught.value.field == "recipe.reference_model"
    assert hint in caught.value.hint


@pytest.mark.parametrize("job", ["dpo", "orpo", "simpo", "reward", "grpo"])
def test_what_is_not_planned_yet_is_said(job: str) -> None:
    with pytest.raises(PlannerError, match="not planned yet") as caught:
        resolve(parse_request({"model": "gpt2", "recipe": {"job": job}}), allow_paths=False)
    assert caught.value.field == "recipe.job"
