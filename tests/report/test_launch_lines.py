"""What a report says of a plan's files: the command, or why there are none and what has some."""

from dataclasses import replace
from typing import Any

import pytest
from conftest import JobMaker

from planner.advice.plan import Plan, make_plan
from planner.answers import suggest
from planner.core.units import format_seconds
from planner.report.launch import command_with, how_to_run, offer_words, other_choices
from planner.report.plan import plan_text, reasons_without_files
from planner.report.values import Terminal
from planner.request.schema import parse_request

COMMAND = "planner suggest M --gpus 4"


def text_of(request: dict[str, Any], command: str = COMMAND) -> tuple[Plan, str]:
    _, plan = suggest(parse_request(request), allow_paths=False)
    return plan, plan_text(plan, (), command, Terminal())


def test_a_plan_with_files_has_its_command(make_job: JobMaker) -> None:
    text = plan_text(make_plan(make_job("gpt2", gpus=4)), (), COMMAND, Terminal())
    assert f"\n  Run it   {COMMAND} --out DIR\n" in text
    assert "\n  Files" not in text


def test_a_plan_without_files_says_so_first_and_has_no_command() -> None:
    plan, text = text_of({"model": "microsoft/resnet-50"})
    assert not plan.offers
    words = " ".join(text.split())
    assert f"Files none: {plan.launch.reason}" in words
    assert "--out DIR" not in words
    assert "\n  Instead  " in text


def test_another_optimizer_is_no_silent_way_out() -> None:
    cluster = {"gpu": "h100", "gpus_per_node": 8}
    recipe = {"optimizer": "muon"}
    _, text = text_of({"model": "meta-llama/Llama-2-7b-hf", "cluster": cluster, "recipe": recipe})
    words = " ".join(text.split())
    assert f"Instead {COMMAND} " in words
    assert " --optimizer adamw-fused --out DIR (the nearest with launch files: " in words


def test_another_tool_is_named_beside_the_command() -> None:
    cluster, recipe = {"gpu": "a100", "gpus_per_node": 4}, {"job": "pretrain"}
    plan, text = text_of({"model": "gpt2", "cluster": cluster, "recipe": recipe})
    words = " ".join(text.split())
    assert f"{COMMAND} --out DIR" in words
    (offer,) = (each for each in plan.offers if "recipe.framework" in each.changes)
    framework = offer.changes["recipe.framework"]
    (choice,) = (each for each in other_choices(plan) if framework in each[0])
    assert choice[2] == f"--framework {framework}"
    assert choice[1].startswith(offer_words(plan, offer).rpartition(", ")[2].partition(";")[0])


def test_one_gpu_has_no_sizes_to_name() -> None:
    cluster = {"gpu": "h100", "gpus_per_node": 1}
    recipe = {"method": "lora", "attention": "sdpa"}
    _, text = text_of({"model": "openai/gpt-oss-20b", "cluster": cluster, "recipe": recipe})
    assert "(the nearest with launch files: one GPU, " in " ".join(text.split())


def test_one_gpu_that_offloads_is_said_to() -> None:
    cluster = {"gpu": "rtx-3090", "gpus_per_node": 1}
    recipe = {"framework": "deepspeed", "optimizer": "lion"}
    plan, text = text_of({"model": "gpt2-xl", "cluster": cluster, "recipe": recipe})
    (offer,) = plan.offers
    assert offer.candidate.strategy.offloads_optimizer
    words = "(the nearest with launch files: one GPU with offload of optimizer, "
    assert words in " ".join(text.split())


def test_a_plan_without_files_has_the_command_of_the_nearest_that_has_some() -> None:
    model = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
    recipe = {"framework": "composer", "sequence_length": 2048, "global_batch_size": 64}
    command = "planner suggest M --framework=composer --seq-len 2048 --global-batch-size 64"
    cluster = {"gpu": "a100", "gpus_per_node": 4}
    plan, text = text_of({"model": model, "cluster": cluster, "recipe": recipe}, command)
    offer = plan.offers[0]
    framework = offer.changes["recipe.framework"]
    new = f"planner suggest M --seq-len 2048 --global-batch-size 64 --framework {framework}"
    words = " ".join(text.split())
    assert f"Instead {new} " in words
    assert f" --out DIR ({offer_words(plan, offer)})" in words
    assert format_seconds(offer.candidate.step_time.step_seconds) in words


@pytest.mark.parametrize(
    ("changes", "dropped", "expected"),
    [
        ({"recipe.precision": "bf16"}, (), "planner suggest M --tp 2 --json --precision bf16"),
        ({}, ("strategy",), "planner suggest M --precision fp8 --json"),
        (
            {"recipe.framework": "torch"},
            (),
            "planner suggest M --tp 2 --precision fp8 --json --framework torch",
        ),
    ],
)
def test_a_command_keeps_all_words_but_those_that_change(
    changes: dict[str, str], dropped: tuple[str, ...], expected: str
) -> None:
    plan, _ = text_of({"model": "gpt2", "recipe": {"framework": "nanotron"}})
    offer = replace(plan.offers[0], changes=changes, dropped=dropped)
    assert command_with("planner suggest M --tp 2 --precision fp8 --json", offer) == expected


def test_another_command_is_told_in_brief_by_what_it_adds() -> None:
    """Of a flag that is said twice the last one counts; what may not be said needs the whole command."""
    plan, _ = text_of({"model": "gpt2", "recipe": {"framework": "nanotron"}})
    command = f"{COMMAND} --framework nanotron"
    _, brief = how_to_run(plan, command, is_brief=True)
    assert brief.amount.startswith("the same with --framework ")
    assert brief.amount.endswith(" --out DIR")
    dropping = replace(plan, offers=(replace(plan.offers[0], dropped=("strategy",)),))
    _, whole = how_to_run(dropping, command, is_brief=True)
    assert whole.amount.startswith("planner suggest M --gpus 4 --framework ")


def test_an_alternative_without_files_says_why_below_the_table() -> None:
    request = {
        "model": "facebook/opt-2.7b",
        "cluster": {"gpu": "a10g", "gpus_per_node": 4},
        "recipe": {
            "sequence_length": 512,
            "global_batch_size": 64,
            "precision": "bf16",
            "compile": False,
            "loss": "standard",
        },
    }
    plan, text = text_of(request)
    assert plan.launch.targets
    assert any(each.reason.endswith("; no files") for each in plan.alternatives)
    (reason,) = reasons_without_files(plan)
    assert reason.endswith("not models of type opt")
    assert "  no files  it divides gpt2" in text
