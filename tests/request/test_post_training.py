"""Jobs on preferences: what they are called, what they need, where their reference is from."""

from typing import Any

import pytest

from planner.core.errors import InvalidInputError, InvalidRequestError, PlannerError
from planner.domain.job import Job
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


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        *(("kto", "dpo"), ("PPO", "grpo"), ("gkd", "dpo")),
        *(
            ("agent", "grpo"),
            ("multi_turn", "grpo"),
            ("async-grpo", "grpo"),
            ("Fully Async", "grpo"),
        ),
    ],
)
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


def resolved(model: str = "gpt2", **recipe: Any) -> Job:
    payload = {"model": model, "recipe": recipe, "cluster": {"gpu": "h100", "gpus_per_node": 8}}
    return resolve(parse_request(payload), allow_paths=False).job


@pytest.mark.parametrize(
    ("model", "recipe", "field"),
    [
        ("google-bert/bert-base-uncased", {"job": "dpo"}, "recipe.job"),
        ("google-bert/bert-base-uncased", {"job": "reward"}, "recipe.job"),
        ("gpt2", {"job": "dpo", "task": "sequence-classification"}, "recipe.task"),
        ("gpt2", {"job": "reward", "task": "token-classification"}, "recipe.task"),
        ("gpt2", {"job": "dpo", "framework": "torchtitan"}, "recipe.framework"),
        ("gpt2", {"job": "reward", "framework": "megatron"}, "recipe.framework"),
        ("gpt2", {"job": "dpo", "loss": "fused"}, "recipe.loss"),
        ("gpt2", {"job": "simpo", "loss": "chunked"}, "recipe.loss"),
    ],
)
def test_what_a_job_does_not_go_with_is_an_error_of_that_field(
    model: str, recipe: dict[str, Any], field: str
) -> None:
    with pytest.raises(PlannerError) as caught:
        resolved(model, **recipe)
    assert caught.value.field == field
    assert caught.value.hint


def test_what_is_usual_of_pairs_is_taken_where_nothing_is_said() -> None:
    job = resolved("Qwen/Qwen2.5-7B", job="dpo")
    assert (job.recipe.sequence_length, job.recipe.global_batch_size) == (1024, 32)
    assert job.tokens_per_step == 2 * 32 * 1024
    assert job.recipe.loss == "chunked"
    assert resolved("Qwen/Qwen2.5-7B", job="reward").recipe.global_batch_size == 512
    counted = resolved(job="dpo", sequence_length=512, global_batch_tokens=2**20)
    assert counted.recipe.global_batch_size == 1024
    assert resolved(
        job="dpo", training_samples=100, sequence_length=512
    ).recipe.training_tokens == (100 * 2 * 512)
