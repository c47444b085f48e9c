import json
from typing import Any

import pytest
from committed import plan_answer

from planner import answers
from planner.core.errors import InvalidInputError
from planner.gate.differences import differences
from planner.gate.facts import FIELDS, Facts, read_facts
from planner.request.schema import fields, parse_request


@pytest.fixture
def plan() -> dict[str, Any]:
    return plan_answer()


def test_nothing_differs_between_a_plan_and_itself(plan: dict[str, Any]) -> None:
    assert differences(read_facts(plan), read_facts(plan)) == ()


def test_what_a_reader_sees_is_told_and_last_digits_are_not(plan: dict[str, Any]) -> None:
    before = read_facts(plan)
    after = json.loads(json.dumps(plan))
    after["chosen"]["time"]["step_seconds"] *= 1.5
    after["chosen"]["memory"]["reserved_bytes"] += 1
    after["chosen"]["strategy"]["zero_stage"] = 2
    after["chosen"]["strategy"]["pipeline_layout"] = [7, 9, 9, 7]
    after["chosen"]["family"] = "zero-2"
    after["launch"]["targets"] = ["torchrun"]
    after["assumptions"] = [{"text": "a slow network"}]
    after["findings"] = [*after["findings"], {"code": "PIP001", "message": "idle"}]
    found = {each.label: each for each in differences(before, read_facts(after))}
    assert "memory per GPU" not in found
    assert found["step"].growth_text == "+50 %"
    assert (found["strategy"].before_text, found["strategy"].after_text) == ("ddp", "zero-2")
    assert found["zero stage"].growth_text == ""
    assert found["layers of each stage"].after_text == "7, 9, 9, 7"
    assert (found["finding"].before_text, found["finding"].after_text) == ("-", "PIP001")
    assert found["assumed"].after_text == "a slow network"
    assert found["files for"].before_text == "trainer"


@pytest.mark.parametrize(
    ("path", "one", "other"),
    [
        ("recipe.lora.alpha", 8.0, 64.0),
        ("recipe.lora.targets", ["q_proj"], ["v_proj"]),
        ("recipe.lora.dropout", 0.0, 0.1),
        ("recipe.fp8_recipe", None, "rowwise"),
        ("recipe.gradient_reduce_dtype", None, "bf16"),
        ("recipe.compile", False, True),
        ("recipe.task", None, "token-classification"),
        ("recipe.cuda_graphs", False, True),
        ("recipe.lora.bits", 4, 8),
        ("objective", "time", "cost"),
    ],
)
def test_every_field_of_a_request_is_compared(
    path: str, one: object, other: object, plan: dict[str, Any]
) -> None:
    def facts(value: object) -> Facts:
        answer, request = json.loads(json.dumps(plan)), dict[str, Any](model="gpt2")
        in_answer = any(each.path == f"job.{path}" for each in FIELDS)
        *above, last = path.split(".")
        section = answer["job"] if in_answer else request
        for key in above:
            section[key] = section.get(key) or {}
            section = section[key]
        section[last] = value
        return read_facts(answer, request)

    (change,) = differences(facts(one), facts(other))
    assert change.field in {f"job.{path}", f"request.{path}"}


def test_the_fields_of_a_request_are_those_of_the_table() -> None:
    compared = {each.path.removeprefix("job.").removeprefix("request.") for each in FIELDS}
    compared |= {path.replace("recipe.rollout.", "recipe.") for path in compared}
    elsewhere = {"id", "model", "why", "machine", "strategy.family", "strategy.data_parallel_size"}
    elsewhere |= {"files.targets", "files.launchers"}  # what is written of a plan, not the plan
    links = {"cluster.intra_node", "cluster.inter_node"}
    assert set(fields()) <= compared | elsewhere | links


def test_a_lock_of_fewer_fields_differs_in_none_of_the_others(plan: dict[str, Any]) -> None:
    older = json.loads(json.dumps(plan))
    del older["job"]["recipe"]["compile"], older["chosen"]["strategy"]["offload"]
    assert differences(read_facts(older), read_facts(plan)) == ()


def test_what_only_one_of_two_has_is_told(plan: dict[str, Any]) -> None:
    before = read_facts(plan)
    plan["chosen"]["training"] = None
    found = {each.label: each for each in differences(before, read_facts(plan))}
    assert {"whole run", "GPU-hours", "cost"} == set(found)
    assert found["cost"].before_text.startswith("$")
    assert (found["cost"].after, found["cost"].after_text, found["cost"].growth) == (
        None,
        "-",
        None,
    )


def grpo(**recipe: Any) -> dict[str, Any]:
    asked = {"job": "grpo", "vllm_mode": "colocate", **recipe}
    cluster = {"gpu": "l40s", "gpus_per_node": 2}
    request = parse_request({"model": "Qwen/Qwen2.5-0.5B", "cluster": cluster, "recipe": asked})
    resolved, plan = answers.suggest(request, allow_paths=True)
    read: dict[str, Any] = json.loads(json.dumps(answers.answer_plan(resolved, plan, None)))
    return read


def test_a_plan_of_grpo_is_its_whole_step() -> None:
    plan = grpo(training_tokens=10**9)
    facts, rollout, training = read_facts(plan), plan["rollout"], plan["chosen"]["training"]
    assert facts.amount("time.step_seconds") == rollout["step_seconds"]
    held = max(rollout["training_bytes"], rollout["generating_bytes"])
    assert facts.amount("memory.reserved_bytes") == held
    assert facts.amount("tokens_per_second_per_gpu") == rollout["tokens_per_second"] / 2
    longer = rollout["step_seconds"] - plan["chosen"]["time"]["step_seconds"]
    run = training["seconds"] + training["steps"] * longer
    assert facts.amount("training.seconds") == pytest.approx(run)
    assert facts.amount("training.gpu_hours") == pytest.approx(2 * run / 3600, rel=0.01)


@pytest.mark.parametrize(
    ("changed", "label"),
    [
        ({"vllm_mode": "none"}, "vLLM"),
        ({"vllm_mode": "none"}, "step"),
        ({"num_generations": 16}, "completions per prompt"),
        ({"mean_completion_length": 300}, "step"),
        ({"vllm_tensor_parallel_size": 2}, "GPUs of an engine"),
    ],
)
def test_what_a_plan_of_grpo_generates_is_compared(changed: dict[str, Any], label: str) -> None:
    changes = differences(read_facts(grpo()), read_facts(grpo(**changed)))
    assert label in {each.label for each in changes}


@pytest.mark.parametrize("name", ["step_seconds", "training_bytes", "generating_bytes", "mode"])
def test_figures_of_a_whole_step_that_are_none_are_refused(name: str) -> None:
    plan = grpo()
    plan["rollout"][name] = ["1"]
    with pytest.raises(InvalidInputError):
        read_facts(plan)
