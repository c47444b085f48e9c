"""What has launch files in place of a plan that has none."""

from typing import Any

import pytest

from planner.advice.launch import Instead
from planner.advice.plan import Plan, make_plan
from planner.catalog import records
from planner.request.schema import parse_request, resolve
from planner.search.search import search
from planner.targets import launch

OPT = {
    "model": "facebook/opt-2.7b",
    "cluster": {"gpu": "a10g", "gpus_per_node": 4},
    "recipe": {"sequence_length": 512, "global_batch_size": 64, "precision": "bf16"},
}


def planned(request: dict[str, Any], pinned: dict[str, int] | None = None) -> Plan:
    return make_plan(resolve(parse_request(request), allow_paths=False).job, pinned)


def instead_of(plan: Plan) -> Instead:
    assert not plan.launch.targets
    assert plan.instead is not None
    return plan.instead


def test_what_can_be_written_needs_nothing_instead() -> None:
    plan = planned(OPT)
    assert plan.launch.targets
    assert plan.instead is None


def test_the_choice_is_among_what_can_be_written() -> None:
    """The fastest layout is a pipeline that nobody has a script of."""
    plan = planned(OPT)
    result = search(plan.job)
    fastest = result.candidate(int(result.step_seconds.argmin()))
    assert not launch(plan.job, fastest.strategy).targets
    assert fastest.step_time.step_seconds < plan.chosen.step_time.step_seconds
    written = result.step_seconds[result.fits & result.is_writable]
    assert 0 < len(written) < result.fits.sum()
    assert result.is_writable.tolist() == [
        bool(launch(plan.job, result.table.at(row)).targets) for row in range(result.size)
    ]


def test_pins_that_leave_nothing_to_write_are_dropped() -> None:
    instead = instead_of(planned(OPT, {"tensor_parallel_size": 2}))
    assert instead.drops_pins
    assert instead.candidate.strategy.tensor_parallel_size == 1


def test_pins_that_another_framework_writes_are_kept() -> None:
    request = {"model": "Qwen/Qwen3-30B-A3B", "cluster": {"gpu": "h200", "gpus_per_node": 8}}
    recipe = {"framework": "nanotron", "global_batch_size": 64, "sequence_length": 2048}
    pinned = {"pipeline_parallel_size": 2}
    instead = instead_of(planned({**request, "recipe": recipe}, pinned))
    assert instead.changes == {"recipe.framework": "megatron"}
    assert not instead.drops_pins
    assert instead.candidate.strategy.pipeline_parallel_size == 2


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        ({"optimizer": "muon"}, {"recipe.optimizer": "adamw"}),
        (
            {"precision": "fp16-mixed", "weights_dtype": "config"},
            {"recipe.weights_dtype": "fp32"},
        ),
    ],
)
def test_what_the_scripts_do_not_run_is_changed(
    recipe: dict[str, str], changes: dict[str, str]
) -> None:
    model = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
    instead = instead_of(planned({"model": model, "recipe": recipe}))
    assert changes.items() <= instead.changes.items()
    assert instead.changes.keys() <= {*changes, "recipe.framework"}


def test_weights_in_the_configs_dtype_stay_in_it() -> None:
    """Megatron-LM and DeepSpeed would train an fp32 copy."""
    model = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
    recipe = {"optimizer": "muon", "weights_dtype": "config"}
    instead = instead_of(planned({"model": model, "recipe": recipe}))
    assert instead.changes["recipe.optimizer"] == "adamw"
    assert instead.changes.get("recipe.framework", "torch") in {"torch", "accelerate", "torchtitan"}


def test_adapters_have_files_in_another_framework() -> None:
    recipe = {"method": "lora", "framework": "megatron"}
    instead = instead_of(planned({"model": "gpt2", "recipe": recipe}))
    assert instead.changes.keys() == {"recipe.framework"}


@pytest.mark.parametrize(
    "request_",
    [
        {"model": "microsoft/resnet-50"},
        {"model": "gpt2", "cluster": {"gpu": "mi300x", "gpus_per_node": 2}},
    ],
)
def test_what_no_framework_writes_has_nothing_instead(request_: dict[str, Any]) -> None:
    assert planned(request_).instead is None


def test_every_framework_of_an_answer_is_known() -> None:
    instead = instead_of(planned({"model": "gpt2", "recipe": {"framework": "nanotron"}}))
    assert instead.changes["recipe.framework"] in records.framework_names()
