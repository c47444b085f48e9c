"""Releases of frameworks: which one a text means, and that each adds to its framework's record."""

import tomllib
from pathlib import Path

import pytest

from planner.catalog import records
from planner.catalog.framework_names import as_recorded, framework_called, projects_of, spellings_of
from planner.catalog.releases import Release, at_release, implied_release, release, releases_of
from planner.core.errors import InvalidInputError
from planner.domain.framework import Framework

SAID = [
    tuple(row)
    for project in tomllib.loads(
        Path(__file__).with_name("said_releases.toml").read_text(encoding="utf-8")
    )["project"]
    for row in project["said"]
]


@pytest.mark.parametrize(("framework", "version", "record", "name", "remark"), SAID)
def test_what_people_write_means_the_release_of_the_project_that_they_name(
    framework: str, version: str, record: str, name: str, remark: str
) -> None:
    found, said = as_recorded(framework, version or None)
    assert (found, said is not None) == (record, True)
    taken = release(found, said or "")
    assert (taken.release.name, taken.remark) == (name, remark)


def test_the_table_is_as_long_as_it_says() -> None:
    assert len({row[:2] for row in SAID}) == len(SAID) >= 60


def _versions(each: Release) -> list[tuple[str, str]]:
    """Return every project and version that a release stands for, and some beside them."""
    beside = ("0.1", "0.13", "0.16.1", "1.0", "2.4.0", "3.1", "25.07", "2022-03", "2025-06", "")
    said = {(project, text) for project, span in each.versions.items() for text in (*span, *beside)}
    return sorted(said)


@pytest.mark.parametrize(
    ("framework", "project", "version"),
    sorted(
        {
            (framework, *said)
            for framework in records.framework_names()
            for each in releases_of(framework)
            for said in _versions(each)
        }
    ),
)
def test_a_version_of_a_project_never_means_a_release_of_another(
    framework: str, project: str, version: str
) -> None:
    found, said = as_recorded(project, version or None)
    texts = [f"{project} {version}", *([said] if said and found == framework else [])]
    for text in texts:
        assert project in release(framework, text).release.versions


def test_a_name_is_of_one_framework_alone() -> None:
    names = records.framework_names()
    own = [each for name in names for each, of in spellings_of(name).items() if of == name]
    assert len(own) == len(set(own))
    for name in names:
        for spelling, project in spellings_of(name).items():
            called = framework_called(spelling)
            assert called is not None
            is_shared = spelling in own
            assert is_shared or (called.framework, called.project) == (name, project)


@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("megatron-lm", "megatron"),
        ("Megatron Core", "megatron"),
        ("pretrain_gpt", "megatron"),
        ("pytorch", "torch"),
        ("FSDP", "torch"),
        ("fsdp2", "torch"),
        ("hf", "accelerate"),
        ("transformers", "accelerate"),
        ("Trainer", "accelerate"),
        ("deepspeed-zero", "deepspeed"),
        ("torch-titan", "torchtitan"),
        ("mosaicml", "composer"),
        ("llm-foundry", "composer"),
    ],
)
def test_a_framework_goes_by_what_people_call_it_and_no_release_is_said(
    name: str, framework: str
) -> None:
    assert as_recorded(name, None) == (framework, None)


@pytest.mark.parametrize("name", ["", "meg", "zero3", "megatorn", "nemo-curator", "torch2.8"])
def test_what_no_record_plans_stays_as_it_was_written(name: str) -> None:
    assert as_recorded(name, "2.8") == (name, "2.8")


@pytest.mark.parametrize(("version", "is_early"), [("2023-01", True), ("2023-06", False)])
def test_composer_was_slower_before_llm_foundry(*, version: str, is_early: bool) -> None:
    found = at_release("composer", release("composer", version).release.name)
    now = records.framework("composer")
    assert (found.memory_bound.backward_passes > now.memory_bound.backward_passes) == is_early


@pytest.mark.parametrize(
    ("framework", "version", "hint"),
    [
        ("megatron", "the one of last week", "internevo 0.3.3"),
        ("megatron", "mcor 0.16", "did you mean mcore"),
        ("megatron", "torch 2.8", "--framework torch is what plans torch"),
        ("deepspeed", "megatron-deepspeed 0.6", "--framework megatron is what plans"),
        ("torch", "zwei", "a version: nemo-automodel 0.5.0, 2.13.0"),
        ("megatron", "v", "megatron-bridge 0.6.0"),
    ],
)
def test_a_text_that_is_no_release_is_refused_with_the_nearest_that_is(
    framework: str, version: str, hint: str
) -> None:
    with pytest.raises(InvalidInputError) as raised:
        release(framework, version)
    assert raised.value.field == "recipe.framework_version"
    assert hint in (raised.value.hint or "")


def test_a_framework_without_releases_keeps_its_record() -> None:
    assert at_release("torch", release("torch", "2.4.1").release.name) == records.framework("torch")


@pytest.mark.parametrize("framework", records.framework_names())
def test_every_project_has_a_release(framework: str) -> None:
    known = {project for each in releases_of(framework) for project in each.versions}
    assert set(projects_of(framework)) <= known


@pytest.mark.parametrize("framework", records.framework_names())
def test_every_release_adds_to_its_frameworks_record(framework: str) -> None:
    for each in releases_of(framework):
        built = at_release(framework, each.name)
        assert isinstance(built, Framework)
        assert (built.name, built.release) == (framework, each.name)
        assert set(each.versions) <= {framework, *projects_of(framework)}


@pytest.mark.parametrize(
    ("framework", "capability", "name"),
    [
        ("megatron", "10.0", ""),
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
    old = at_release("megatron", "Megatron-DeepSpeed 2022")
    new = records.framework("megatron")
    assert old.host.layer_seconds > new.host.layer_seconds == 0
    assert old.precisions["bf16-mixed"].gradient_bytes == 6
    assert old.host.operation_seconds == new.host.operation_seconds
