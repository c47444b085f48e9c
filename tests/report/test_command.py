"""A request as the command that asks the same."""

from typing import Any

import pytest

from planner.cli.options import build_request
from planner.cli.plans import suggest
from planner.report.command import request_words
from planner.request.schema import Request, parse_request

GPT2 = {"model": "gpt2", "cluster": {"gpu": "a100", "gpus_per_node": 2, "nodes": 1}}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"strategy": {"zero_stage": 2, "micro_batch_size": 4}},
        {"strategy": {"tensor_parallel_size": 2, "recompute": "full", "sequence_parallel": True}},
        {"recipe": {"training_tokens": 10**9, "method": "lora", "lora": {"rank": 4}}},
        {"recipe": {"global_batch_tokens": 2**20}},
        {
            "objective": "gpus",
            "max_gpus": 16,
            "deadline_hours": 2.5,
            "recipe": {"training_tokens": 10**9},
        },
    ],
)
def test_the_command_asks_the_same(more: dict[str, Any]) -> None:
    asked = parse_request({**GPT2, **more})
    words = request_words(asked.model_dump(mode="json", exclude_unset=True))
    assert words is not None
    context = suggest.make_context("suggest", words[2:])
    model = context.params.pop("model")
    again = build_request(model, context.params)
    assert _said(again) == _said(asked)


def _said(request: Request) -> dict[str, Any]:
    said = request.model_dump(exclude_unset=True, exclude={"id"})
    return {name: value for name, value in said.items() if value != {}}


@pytest.mark.parametrize(
    "more",
    [
        {"machine": {"kind": "x"}},
        {"cluster": {"topology": "GPU0"}},
        {"model": {"hidden_size": 1}},
        {"cluster": {"something_new": 1}},
    ],
)
def test_what_no_command_can_say_has_none(more: dict[str, Any]) -> None:
    assert request_words({**GPT2, **more}) is None
