"""A loss that a model or a framework has not is refused by name."""

import pytest

from planner.core.errors import InvalidInputError, InvalidRequestError
from planner.request.schema import parse_request, resolve


def resolved(model: str, **recipe: str) -> str:
    request = parse_request({"model": model, "recipe": recipe})
    return resolve(request, allow_paths=False).job.recipe.loss


def test_the_standard_loss_is_the_default() -> None:
    assert resolved("gpt2") == "standard"
    assert resolved("gpt2", loss="fused") == "fused"


def test_a_misspelt_loss_names_the_nearest() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_request({"model": "gpt2", "recipe": {"loss": "chunkd"}})
    (problem,) = caught.value.problems
    assert problem.field == "recipe.loss"
    assert problem.hint == "did you mean chunked?"


def test_a_framework_without_that_loss_names_those_that_have_it() -> None:
    with pytest.raises(InvalidInputError, match="not estimated for megatron") as caught:
        resolved("gpt2", loss="chunked", framework="megatron")
    assert "torchtitan" in caught.value.hint


def test_a_classifier_has_no_logits_over_a_vocabulary() -> None:
    with pytest.raises(InvalidInputError, match="over a vocabulary"):
        resolved("google/vit-base-patch16-224", loss="fused")
