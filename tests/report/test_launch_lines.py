"""What a report says of a plan's files: the command, or why there are none and what has some."""

from dataclasses import replace
from typing import Any

import pytest
from conftest import JobMaker

from planner.advice.plan import Plan, make_plan
from planner.core.units import format_seconds
from planner.report.first_screen import reasons
from planner.report.launch import command_instead, how_to_run
from planner.report.plan import plan_text, reasons_without_files
from planner.report.values import Terminal
from planner.request.schema import parse_request, resolve

COMMAND = "planner suggest M --gpus 4"


def text_of(request: dict[str, Any], command: str = COMMAND) -> tuple[Plan, str]:
    plan = make_plan(resolve(parse_request(request), allow_paths=False).job)
    return plan, plan_text(plan, (), command, Terminal())


def test_a_plan_with_files_has_its_command(make_job: JobMaker) -> None:
    text = plan_text(make_plan(make_job("gpt2", gpus=4)), (), COMMAND, Terminal())
    assert f"\nRun it  {COMMAND} --out DIR (writes" in text
    assert "\nFiles" not in text


def test_a_plan_without_files_says_so_first_and_has_no_command() -> None:
    plan, text = text_of({"model": "microsoft/resnet-50"})
    assert plan.instead is None
    assert (
        "\nFiles   none: for image-classification the scripts know the inputs of vit, deit," in text
    )
    assert "--out DIR" not in text
    assert "Instead no change of recipe or layout that was tried gives files" in text


def test_another_optimizer_is_no_silent_way_out() -> None:
    cluster = {"gpu": "h100", "gpus_per_node": 8}
    recipe = {"optimizer": "muon"}
    _, text = text_of({"model": "meta-llama/Llama-2-7b-hf", "cluster": cluster, "recipe": recipe})
    assert "; with another optimizer than muon; its files start from random weights)" in " ".join(
        text.split()
    )


def test_a_faster_framework_is_named_beside_the_command() -> None:
    cluster = {"gpu": "rtx-4090", "gpus_per_node": 8, "nodes": 8}
    plan, text = text_of({"model": "meta-llama/Llama-2-70b-hf", "cluster": cluster})
    words = " ".join(text.split())
    assert "--out DIR (writes the launch files" in words
    assert "(deepspeed is 5.9 times as fast: " in words
    assert [each.code for each in reasons(plan.findings, 2)] == ["MEM003", "COM002"]


def test_one_gpu_has_no_sizes_to_name() -> None:
    cluster = {"gpu": "h100", "gpus_per_node": 1}
    recipe = {"method": "lora", "attention": "sdpa"}
    plan, text = text_of({"model": "openai/gpt-oss-20b", "cluster": cluster, "recipe": recipe})
    assert plan.instead is not None
    assert "(the fastest with launch files: one GPU, in " in " ".join(text.split())


def test_one_gpu_that_offloads_is_said_to() -> None:
    cluster = {"gpu": "rtx-4090", "gpus_per_node": 1}
    recipe = {"global_batch_size": 1024}
    plan, text = text_of({"model": "openai/whisper-large-v3", "cluster": cluster, "recipe": recipe})
    assert plan.instead is not None
    assert plan.instead.candidate.strategy.offloads_optimizer
    assert ": one GPU with offload of optimizer and parameters, " in " ".join(text.split())


def test_a_plan_without_files_has_the_command_of_the_fastest_that_has_some() -> None:
    model = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
    recipe = {"framework": "composer", "sequence_length": 2048, "global_batch_size": 64}
    command = "planner suggest M --framework=composer --seq-len 2048 --global-batch-size 64"
    cluster = {"gpu": "a100", "gpus_per_node": 4}
    request = {"model": model, "cluster": cluster, "recipe": recipe}
    plan, text = text_of(request, command)
    assert plan.instead is not None
    framework = plan.instead.changes["recipe.framework"]
    new = (
        f"planner suggest M --seq-len 2048 --global-batch-size 64 --framework {framework} --out DIR"
    )
    assert f"Instead {new}" in " ".join(text.split())
    for name in ("torch", "deepspeed", "megatron"):
        other = {**recipe, "framework": name}
        there = make_plan(
            resolve(parse_request({**request, "recipe": other}), allow_paths=False).job
        )
        assert there.launch.targets
        slowest = 1.001 * float(there.chosen.step_time.step_seconds)
        # The tree may choose another layout there, none that is faster beyond a tie.
        assert float(plan.instead.candidate.step_time.step_seconds) <= 1.02 * slowest
    assert format_seconds(plan.instead.candidate.step_time.step_seconds) in text


@pytest.mark.parametrize(
    ("changes", "drops_pins", "expected"),
    [
        ({"recipe.precision": "bf16"}, False, "planner suggest M --tp 2 --json --precision bf16"),
        ({}, True, "planner suggest M --precision fp8 --json"),
        (
            {"recipe.framework": "torch"},
            False,
            "planner suggest M --tp 2 --precision fp8 --json --framework torch",
        ),
    ],
)
def test_a_command_keeps_all_words_but_those_that_change(
    changes: dict[str, str], *, drops_pins: bool, expected: str
) -> None:
    plan, _ = text_of({"model": "gpt2", "recipe": {"framework": "nanotron"}})
    assert plan.instead is not None
    instead = replace(plan.instead, changes=changes, drops_pins=drops_pins)
    command = "planner suggest M --tp 2 --precision fp8 --json"
    assert command_instead(command, instead) == expected


def test_another_command_is_told_in_brief_by_what_it_adds() -> None:
    """Of a flag that is said twice the last one counts; what may not be said needs the whole command."""
    plan, _ = text_of({"model": "gpt2", "recipe": {"framework": "nanotron"}})
    command = f"{COMMAND} --framework nanotron"
    (brief,) = how_to_run(plan, command, is_brief=True)
    assert brief.amount.startswith("this command with --framework ")
    assert brief.amount.endswith(" --out DIR")
    assert plan.instead is not None
    dropping = replace(plan, instead=replace(plan.instead, drops_pins=True))
    (whole,) = how_to_run(dropping, command, is_brief=True)
    assert whole.amount.startswith("planner suggest M --gpus 4 --framework ")


def test_an_alternative_without_files_says_why_below_the_table() -> None:
    request = {
        "model": "facebook/opt-2.7b",
        "cluster": {"gpu": "a10g", "gpus_per_node": 4},
        "recipe": {"sequence_length": 512, "global_batch_size": 64, "precision": "bf16"},
    }
    plan, text = text_of(request)
    assert plan.launch.targets
    assert any(each.reason.endswith("; no files") for each in plan.alternatives)
    (reason,) = reasons_without_files(plan)
    assert reason.endswith("not models of type opt")
    assert "  no files  it divides gpt2" in text
