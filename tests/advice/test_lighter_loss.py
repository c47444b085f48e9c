"""A loss without logits is taken before the host's memory, where the request leaves it open."""

from typing import Any

import pytest

from planner import answers
from planner.advice.plan import Plan
from planner.core.errors import NothingFitsError, Remedy
from planner.domain.strategy import Offload
from planner.request.schema import Resolved, parse_request

QWEN_ON_8_A100 = {
    "model": "Qwen/Qwen2.5-32B",
    "cluster": {"gpu": "a100-sxm-80gb", "gpus_per_node": 8},
    "recipe": {
        "framework": "deepspeed",
        "precision": "bf16-mixed",
        "sequence_length": 8192,
        "global_batch_size": 16,
    },
}
"""modelscope/ms-swift examples/train/full/qwen2_5_32b.sh: ZeRO-3 with Liger's loss, nothing offloaded."""
QWEN_ON_A_4090 = {
    "model": "Qwen/Qwen2.5-0.5B",
    "cluster": {"gpu": "rtx-4090", "gpus_per_node": 1},
    "recipe": {"sequence_length": 32768, "global_batch_size": 1, "framework": "accelerate"},
}

LLAMA_ON_A_4090 = {
    "model": "meta-llama/Llama-3.1-8B",
    "cluster": {"gpu": "rtx-4090", "gpus_per_node": 1},
    "recipe": {"method": "qlora"},
}


def asked(request: dict[str, Any], **changes: Any) -> tuple[Resolved, Plan]:
    recipe = request["recipe"] | changes.pop("recipe", {})
    return answers.suggest(
        parse_request({**request, **changes, "recipe": recipe}), allow_paths=False
    )


def test_logits_go_before_the_optimizer_does() -> None:
    resolved, plan = asked(QWEN_ON_8_A100)
    assert plan.chosen.strategy.family == "zero-3"
    assert plan.job.recipe.loss == resolved.job.recipe.loss == "fused"
    assert plan.launch.targets == ("trainer",)
    assert [each.text for each in resolved.assumptions if each.field == "recipe.loss"] == [
        "a fused loss, which never holds all logits: with them only offload fits, or nothing"
    ]


def test_a_loss_that_was_asked_for_stays() -> None:
    resolved, plan = asked(QWEN_ON_8_A100, recipe={"loss": "standard"})
    assert plan.job.recipe.loss == "standard"
    assert plan.chosen.strategy.offloads_optimizer
    assert not [each for each in resolved.assumptions if each.field == "recipe.loss"]


@pytest.mark.parametrize("asks", [{"offload": "optimizer+parameters"}, {"offload": "optimizer"}])
def test_offload_that_was_asked_for_stays(asks: dict[str, str]) -> None:
    _, plan = asked(QWEN_ON_8_A100, strategy=asks)
    assert plan.chosen.strategy.offload == Offload(asks["offload"])
    assert plan.job.recipe.loss == "standard"


def test_where_nothing_fits_with_logits_something_may_without() -> None:
    with pytest.raises(NothingFitsError):
        asked(QWEN_ON_A_4090, recipe={"loss": "standard"})
    _, plan = asked(QWEN_ON_A_4090)
    assert plan.job.recipe.loss in {"fused", "chunked"}
    assert plan.chosen.fits
    assert plan.launch.targets


def remedies_of(request: dict[str, Any], **changes: Any) -> dict[str, Remedy]:
    with pytest.raises(NothingFitsError) as refused:
        asked(request, **changes)
    return {each.field: each for each in refused.value.remedies}


def test_the_longest_sequence_that_is_named_is_the_longest_that_gets_a_plan() -> None:
    named = int(
        remedies_of(LLAMA_ON_A_4090, recipe={"sequence_length": 131072})[
            "recipe.sequence_length"
        ].value
    )
    _, plan = asked(LLAMA_ON_A_4090, recipe={"sequence_length": named})
    assert plan.job.recipe.loss == "fused"
    assert "recipe.loss" not in remedies_of(LLAMA_ON_A_4090, recipe={"sequence_length": 2 * named})
    # With its logits it would fit no better than the sentence of a loss that was asked for says.
    standard = {"sequence_length": 131072, "loss": "standard"}
    asked_for = remedies_of(LLAMA_ON_A_4090, recipe=standard)
    assert int(asked_for["recipe.sequence_length"].value) < named


def test_a_loss_that_needs_the_host_too_is_named() -> None:
    long = {"sequence_length": 2**20, "method": "full"}
    on_8 = {"cluster": {"gpu": "h100-sxm-80gb", "gpus_per_node": 8}}
    remedy = remedies_of(LLAMA_ON_A_4090, recipe=long, **on_8)["recipe.loss"]
    assert remedy.value == "fused"
    assert "with offload of optimizer and parameters" in remedy.sentence
    _, plan = asked(LLAMA_ON_A_4090, recipe={**long, "loss": "fused"}, **on_8)
    assert plan.chosen.strategy.offloads_optimizer


def test_what_fits_with_logits_keeps_them() -> None:
    _, plan = asked(QWEN_ON_A_4090, recipe={"sequence_length": 1024})
    assert plan.job.recipe.loss == "standard"


def test_the_memory_of_a_suggestion_is_that_of_its_loss() -> None:
    resolved, candidate = answers.memory_request(parse_request(QWEN_ON_8_A100), allow_paths=False)
    assert resolved.job.recipe.loss == "fused"
    assert not candidate.strategy.offloads_optimizer


LLAMA_70B_ON_64_4090 = {
    "model": "meta-llama/Llama-2-70b-hf",
    "cluster": {"gpu": "rtx-4090", "gpus_per_node": 8, "nodes": 8},
}


def test_a_lighter_loss_does_not_cost_the_replicas_of_shards() -> None:
    """Only Trainer writes a fused loss, and not with hybrid sharding: 254 s a step in place of 54 s."""
    request = {**LLAMA_70B_ON_64_4090, "recipe": {"method": "lora"}}
    resolved, plan = asked(request)
    assert plan.job.recipe.loss == "standard"
    assert plan.launch.targets
    assert plan.chosen.strategy.data_parallel_replicate_size > 1
    assert not [each for each in resolved.assumptions if each.field == "recipe.loss"]
    _, fused = asked(request, recipe={"method": "lora", "loss": "fused"})
    assert plan.chosen.step_time.high_seconds < fused.chosen.step_time.low_seconds
