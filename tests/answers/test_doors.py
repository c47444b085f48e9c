"""One question has one number: what `suggest` proposes is what `estimate`, `memory` and `replicas` say of it."""

from typing import Any

import pytest

from planner import answers
from planner.answers.replicas import replicas_request
from planner.request.schema import Request, parse_request
from planner.request.stacks import stack_of


def of_plan(payload: dict[str, Any], layout: dict[str, Any], stack: dict[str, object]) -> Request:
    recipe = {**payload["recipe"], **stack}
    return parse_request({**payload, "recipe": recipe, "strategy": layout})


@pytest.mark.parametrize(
    ("model", "method", "precision"),
    [
        ("gpt2", "full", "bf16-mixed"),
        ("meta-llama/Llama-2-7b-hf", "full", "bf16-mixed"),
        ("meta-llama/Llama-2-7b-hf", "lora", "bf16"),
        ("meta-llama/Llama-3.1-8B", "qlora", "bf16-mixed"),
        ("meta-llama/Llama-3.1-8B", "full", "bf16"),
    ],
)
def test_every_door_has_the_same_number(model: str, method: str, precision: str) -> None:
    recipe = {"method": method, "precision": precision, "loss": "standard", "compile": False}
    cluster = {"gpu": "b200", "gpus_per_node": 4}
    payload = {"model": model, "cluster": cluster, "recipe": recipe}
    wished = {**payload, "strategy": {"zero_stage": 0, "tensor_parallel_size": 1}}
    _, plan = answers.suggest(parse_request(wished), allow_paths=False)
    layout = {k: v for k, v in plan.chosen.strategy.contract().items() if v is not None}
    asked = of_plan(payload, layout, stack_of(plan.job))
    for door in (answers.estimate_request, answers.memory_request):
        _, candidate = door(asked, allow_paths=False)
        assert candidate.memory.reserved_bytes == plan.chosen.memory.reserved_bytes
        assert candidate.step_time.step_seconds == plan.chosen.step_time.step_seconds
    candidate = replicas_request(asked, allow_paths=False)[1].candidate
    assert candidate.memory.reserved_bytes == plan.chosen.memory.reserved_bytes


def test_an_estimate_says_what_a_suggestion_would_decide() -> None:
    def taken(recipe: dict[str, Any], strategy: dict[str, Any]) -> set[str]:
        asked = parse_request({"model": "gpt2", "recipe": recipe, "strategy": strategy})
        resolved, _ = answers.estimate_request(asked, allow_paths=False)
        return {each.field for each in resolved.assumptions}

    fields = {"recipe.framework", "recipe.compile", "recipe.loss", "strategy.micro_batch_size"}
    assert taken({}, {}) & fields == {"recipe.framework", "strategy.micro_batch_size"}
    said = {"framework": "torch", "compile": False, "loss": "standard"}
    assert not taken(said, {"micro_batch_size": 1}) & fields
    assert taken({"framework": "torch"}, {"micro_batch_size": 1}) & fields == {"recipe.compile"}
