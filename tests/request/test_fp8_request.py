"""Scales of fp8 that a request asks for: where they are, and where they are refused by name."""

from typing import Any

import pytest

from planner.core.errors import InvalidInputError, InvalidRequestError
from planner.request.schema import Resolved, parse_request, resolve

FIELD = "recipe.fp8_recipe"


def resolved(gpu: str, framework: str, name: str | None, precision: str = "fp8") -> Resolved:
    recipe: dict[str, Any] = {"framework": framework, "precision": precision, "fp8_recipe": name}
    request = {"model": "meta-llama/Llama-3.1-8B", "cluster": {"gpu": gpu}, "recipe": recipe}
    return resolve(parse_request(request), allow_paths=False)


@pytest.mark.parametrize(
    ("gpu", "framework", "name"),
    [
        ("h100", "torchtitan", "rowwise"),
        ("l40s", "torchtitan", "tensorwise"),
        ("h100", "megatron", "blockwise"),
        ("b200-sxm", "megatron", "mxfp8"),
        ("mi300x", "megatron", "tensorwise"),
    ],
)
def test_scales_that_framework_and_card_have_are_taken(gpu: str, framework: str, name: str) -> None:
    found = resolved(gpu, framework, name)
    assert found.job.fp8_recipe == found.job.framework.fp8_recipes[name]
    assert not [each for each in found.assumptions if each.field == FIELD]


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        (("h100", "megatron", "mxfp8"), "has no fp8 matmuls", "tensorwise, blockwise"),
        (("l40s", "megatron", "blockwise"), "has no fp8 matmuls", "compute capability 9.0"),
        (("mi300x", "megatron", "mxfp8"), "has no fp8 matmuls", "tensorwise"),
        (("a100-sxm-80gb", "megatron", "tensorwise"), "has no fp8 matmuls", "bf16-mixed"),
        (("h100", "megatron", "rowwise"), "not estimated for megatron", "torchtitan"),
        (("h100", "torchtitan", "blockwise"), "not estimated for torchtitan", "megatron"),
        (("h100", "megatron", "tensorwise", "bf16-mixed"), "precision is bf16-mixed", "fp8"),
    ],
)
def test_scales_are_refused_by_name_with_what_there_is(
    asked: tuple[str, ...], message: str, hint: str
) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        resolved(*asked)
    assert caught.value.field == FIELD
    assert hint in caught.value.hint


def test_what_the_framework_takes_is_said() -> None:
    found = resolved("h100", "torchtitan", None)
    (said,) = (each for each in found.assumptions if each.field == FIELD)
    assert "tensorwise" in said.text
    assert not [x for x in resolved("h100", "torch", None, "tf32").assumptions if x.field == FIELD]


def test_unknown_scales_are_an_error_of_the_field() -> None:
    with pytest.raises(InvalidRequestError, match="fp8_recipe"):
        parse_request({"model": "gpt2", "recipe": {"precision": "fp8", "fp8_recipe": "delayed"}})
