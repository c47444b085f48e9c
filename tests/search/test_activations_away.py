"""Runs of Bridge with Megatron-FSDP on Grace keep activations in host memory, as far as it takes to fit."""

from typing import Any

import pytest

from planner.answers import answer_estimate
from planner.request.schema import parse_request
from planner.search import candidate


def estimate(gpu: str = "gb200", recipe: dict[str, Any] | None = None, **strategy: Any) -> Any:
    """Return the answer of Llama-3-70B on 64 GPUs, two sequences of 8,192 tokens each: 318 GiB with all of it held."""
    payload = {
        "model": "meta-llama/Meta-Llama-3-70B",
        "cluster": {"gpu": gpu, "gpus_per_node": 4, "nodes": 16, "inter_node": "nvl72-gb200"},
        "recipe": {
            "sequence_length": 8192,
            "global_batch_size": 128,
            "precision": "fp8",
            "framework": "megatron-bridge",
            **(recipe or {}),
        },
        "strategy": {"data_parallel_shard_size": 64, "zero_stage": 3, "micro_batch_size": 2}
        | strategy,
    }
    return answer_estimate(parse_request(payload), allow_paths=False)


@pytest.mark.parametrize(("gpu", "layers"), [("gb200", 38), ("gb300", 10)])
def test_as_many_blocks_leave_as_it_takes_and_it_is_said(gpu: str, layers: int) -> None:
    found = estimate(gpu)
    assert found["fits"]
    assert found["strategy"]["activation_offload_layers"] == layers
    (said,) = [
        each
        for each in found["assumptions"]
        if each["field"] == "strategy.activation_offload_layers"
    ]
    assert f"activations of {layers} of 80 blocks" in said["text"]
    assert not estimate(gpu, activation_offload_layers=layers - 1)["fits"]


@pytest.mark.parametrize(
    ("recipe", "strategy"),
    [
        ({}, {"activation_offload_layers": 0}),
        ({"framework_version": "nemo 24.09"}, {}),
        ({}, {"zero_stage": 1}),
    ],
)
def test_nothing_leaves_where_it_is_said_or_unusual(
    recipe: dict[str, Any], strategy: dict[str, Any]
) -> None:
    found = estimate(recipe=recipe, **strategy)
    assert not found["fits"]
    assert found["strategy"]["activation_offload_layers"] == 0


def test_nothing_leaves_for_a_host_that_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate, "fits_host", lambda _job, _layout: False)
    found = estimate()
    assert not found["fits"]
    assert found["strategy"]["activation_offload_layers"] == 0


def test_gpus_behind_pcie_keep_all_of_it_and_what_fits_does_too() -> None:
    assert estimate("b200")["strategy"]["activation_offload_layers"] == 0
    small = estimate(micro_batch_size=1)
    assert small["fits"]
    assert small["strategy"]["activation_offload_layers"] == 0
