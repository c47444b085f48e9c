"""Which files of a plan are written: the recommended target alone, or what is named."""

import re
from typing import Any

import pytest

from planner import answers
from planner.core.errors import InvalidInputError
from planner.generate import TARGETS
from planner.generate.write_bundle import bundle_files
from planner.request.schema import parse_request

DIVIDED = {"tensor_parallel_size": 2}
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "fine-tuning": ({}, "trainer"),
    "pre-training": ({"recipe": {"job": "pretrain"}}, "torchrun"),
    "divided": ({"strategy": {"tensor_parallel_size": 2, "data_parallel_size": 2}}, "torchrun"),
    "replicas of shards": (
        {
            "strategy": {
                "zero_stage": 3,
                "data_parallel_replicate_size": 2,
                "data_parallel_shard_size": 2,
            }
        },
        "torchrun",
    ),
    "DeepSpeed": ({"recipe": {"framework": "deepspeed"}}, "trainer"),
    "DeepSpeed from random weights": (
        {"recipe": {"framework": "deepspeed", "job": "pretrain"}},
        "trainer",
    ),
    "adapters": ({"recipe": {"method": "lora"}}, "trainer"),
}


def files_of(**more: Any) -> dict[str, str]:
    payload = {"model": "gpt2", "cluster": {"gpu": "a100", "gpus_per_node": 4}, **more}
    resolved, plan = answers.suggest(parse_request(payload), allow_paths=False)
    answer = answers.answer_plan(resolved, plan, None)
    return bundle_files(plan, answer, parse_request(payload).files)


def folders(files: dict[str, str]) -> set[str]:
    return {name.partition("/")[0] for name in files if "/" in name}


@pytest.mark.parametrize("case", CASES)
def test_the_recommended_target_is_written_alone(case: str) -> None:
    more, target = CASES[case]
    files = files_of(**more)
    assert folders(files) == {target}
    assert {name for name in files if "/" not in name} == {"README.md", "plan.json", "launcher.py"}


def test_what_is_named_is_written_and_the_readme_names_the_rest() -> None:
    files = files_of(files={"targets": ["llama-factory", "torchrun"], "launchers": ["slurm"]})
    assert folders(files) == {"llama-factory", "torchrun", "launchers"}
    started = {name for name in files if name.startswith("launchers/")}
    assert started == {"launchers/README.md", "launchers/slurm.sh"}
    assert re.search(r"`--target NAME` .* trainer\.", files["README.md"])
    assert "`launchers/README.md`" in files["README.md"]
    alone = files_of()["README.md"]
    assert len(alone.splitlines()) <= 90
    assert re.search(r"--launcher NAME` .* ssh, slurm, docker, kubernetes, ray\.", alone)
    assert re.search(r"`--target NAME` .* torchrun, llama-factory\.", alone)


def test_pods_bring_the_image_that_they_run() -> None:
    files = files_of(files={"launchers": ["kubernetes"]})
    started = {name for name in files if name.startswith("launchers/")}
    assert started == {
        f"launchers/{name}"
        for name in ("README.md", "Dockerfile", "docker.sh", "job.yaml", "storage.yaml")
    }
    assert ".dockerignore" in files


@pytest.mark.parametrize(
    ("files", "field", "message", "hint"),
    [
        (
            {"targets": ["axolotll"]},
            "files.targets",
            "unknown target 'axolotll'",
            "did you mean axolotl?",
        ),
        (
            {"targets": ["accelerate"]},
            "files.targets",
            "unknown target 'accelerate'",
            "--target trainer, or torchrun where Trainer does not divide the model",
        ),
        (
            {"targets": ["torchtitan"]},
            "files.targets",
            "no files for torchtitan: it runs plans of torchtitan, and this one is of torch",
            "--framework torchtitan plans for it; this plan has trainer, torchrun, llama-factory",
        ),
        (
            {"launchers": ["kubeflow"]},
            "files.launchers",
            "no launcher kubeflow for this plan: it takes 2 nodes or more",
            "there are ssh, slurm, docker, kubernetes, ray",
        ),
        (
            {"targets": ["llama-factory"], "launchers": ["ray"]},
            "files.launchers",
            "no launcher ray for this plan: it starts torchrun, trainer",
            "there are ssh, slurm",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_with_what_can(
    files: dict[str, Any], field: str, message: str, hint: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        files_of(files=files)
    error = caught.value
    assert (error.field, error.message, error.hint) == (field, message, hint)


def test_a_target_that_refuses_the_plan_says_why() -> None:
    with pytest.raises(InvalidInputError, match="no files for trainer: Trainer divides the data"):
        files_of(strategy=DIVIDED, files={"targets": ["trainer"]})


def test_all_is_every_target_that_the_plan_allows() -> None:
    files = files_of(strategy=DIVIDED, files={"targets": "all"})
    assert folders(files) & set(TARGETS) == {"torchrun"}
    assert "No files for **trainer**: Trainer divides the data" in files["README.md"]
