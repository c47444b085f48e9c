"""Releases of frameworks: which one a text means, and that each adds to its framework's record."""

import pytest

from planner.catalog import records
from planner.catalog.releases import framework_release, implied_release, release, releases_of
from planner.core.errors import InvalidInputError
from planner.domain.framework import Framework


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("2022-03", "Megatron-DeepSpeed 2022"),
        ("2022-02-21", "Megatron-DeepSpeed 2022"),
        ("Megatron-DeepSpeed 0.6", "Megatron-DeepSpeed 2022"),
        ("InternEvo c628a8c", "InternEvo"),
        ("2021-04", "Megatron-LM 2021"),
        ("24.09", "NeMo 2024"),
        ("2024-06", "NeMo 2024"),
    ],
)
def test_a_name_a_date_or_a_number_means_the_nearest_release(version: str, name: str) -> None:
    found = release("megatron", version)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(("version", "is_early"), [("2023-01", True), ("2023-06", False)])
def test_composer_was_slower_before_llm_foundry(*, version: str, is_early: bool) -> None:
    found, now = framework_release("composer", version)[0], records.framework("composer")
    assert (found.memory_bound.backward_passes > now.memory_bound.backward_passes) == is_early


def test_a_text_that_is_no_release_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidInputError) as raised:
        release("megatron", "the one of last week")
    assert raised.value.field == "recipe.framework_version"
    assert "internevo" in (raised.value.hint or "")


def test_a_framework_without_releases_keeps_its_record() -> None:
    assert framework_release("torch", "2.4.1") == (records.framework("torch"), "")


@pytest.mark.parametrize("framework", records.framework_names())
def test_every_release_adds_to_its_frameworks_record(framework: str) -> None:
    for each in releases_of(framework):
        built, name = framework_release(framework, each.names[0])
        assert isinstance(built, Framework)
        assert built.name == framework
        assert name == each.name


@pytest.mark.parametrize(
    ("framework", "capability", "name"),
    [
        ("megatron", "10.0", "Megatron Bridge"),
        ("megatron", "9.0", ""),
        ("accelerate", "8.0", "accelerate 1.0 with FSDP1"),
        ("accelerate", "9.0", ""),
        ("torch", "8.0", ""),
    ],
)
def test_a_gpu_means_a_release_where_its_runs_are_of_it(
    framework: str, capability: str, name: str
) -> None:
    found = implied_release(framework, capability, {})
    assert (found.name if found else "") == name


OF_2022 = {
    "attention": "eager",
    "zero_stage": 1,
    "recompute": "full",
    "sequence_parallel": False,
}
"""With it Megatron on A100 means Megatron-DeepSpeed: Megatron-LM sharded no optimizer before it had all of the other."""


@pytest.mark.parametrize(
    ("changed", "capability", "is_meant"),
    [
        ({}, "8.0", True),
        ({}, "7.0", False),
        ({"zero_stage": 0}, "8.0", False),
        ({"attention": "flash"}, "8.0", False),
        ({"attention": None}, "8.0", False),
        ({"recompute": "selective"}, "8.0", False),
        ({"sequence_parallel": True}, "8.0", False),
    ],
)
def test_what_is_said_means_a_release_where_no_other_does_all_of_it(
    changed: dict[str, object], capability: str, *, is_meant: bool
) -> None:
    found = implied_release("megatron", capability, OF_2022 | {"micro_batch_size": 2} | changed)
    assert (found is not None and found.name == "Megatron-DeepSpeed 2022") == is_meant


def test_megatron_deepspeed_takes_a_fixed_time_per_block_and_holds_two_gradients() -> None:
    old, new = framework_release("megatron", "2022-03")[0], records.framework("megatron")
    assert old.host.layer_seconds > new.host.layer_seconds == 0
    assert old.precisions["bf16-mixed"].gradient_bytes == 6
    assert old.host.operation_seconds == new.host.operation_seconds
