"""Where GRPO generates and where it trains: splits, what each holds, what is refused."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from printed import evaluate

from planner.advice.plan import Plan
from planner.advice.rollout_setup import RolloutSetup
from planner.advice.why_not import why_not
from planner.answers import answer_suggestion, memory_request, suggest, suggest_layout
from planner.answers.estimate import answer_estimate
from planner.answers.replicas import replicas_request
from planner.core.errors import InvalidInputError, NothingFitsError, PlannerError, UnsupportedError
from planner.request.schema import parse_request
from planner.rollout.step import GENERATION, SCORING, TRAINING

ON_8 = {"gpu": "h100", "gpus_per_node": 8}


def asked(cluster: dict[str, Any] | None = None, **recipe: Any) -> dict[str, Any]:
    model = recipe.pop("model", "Qwen/Qwen2.5-7B")
    return {"model": model, "cluster": cluster or ON_8, "recipe": {"job": "grpo", **recipe}}


def planned(cluster: dict[str, Any] | None = None, **recipe: Any) -> Plan:
    return suggest(parse_request(asked(cluster, **recipe)), allow_paths=False)[1]


def split(cluster: dict[str, Any] | None = None, **recipe: Any) -> RolloutSetup:
    found = planned(cluster, **recipe).rollout
    assert found is not None
    return found.chosen


@pytest.mark.parametrize(
    ("cluster", "recipe"),
    [
        (ON_8, {}),
        (ON_8, {"method": "lora"}),
        ({"gpu": "rtx-4090", "gpus_per_node": 2}, {"model": "Qwen/Qwen2.5-1.5B"}),
        (ON_8 | {"nodes": 4}, {"model": "meta-llama/Meta-Llama-3-70B"}),
    ],
    ids=["7b", "lora", "two-4090", "four-nodes"],
)
def test_a_step_is_the_sum_of_its_phases_and_fits(
    cluster: dict[str, Any], recipe: dict[str, Any]
) -> None:
    plan = planned(cluster, **recipe)
    assert plan.rollout is not None
    setup = plan.rollout.chosen
    usable = setup.job.usable_bytes
    assert max(setup.training_bytes, setup.generating_bytes) <= usable
    assert setup.step.step_seconds == pytest.approx(sum(float(t.amount) for t in setup.step.terms))
    assert setup.step.low_seconds < setup.step.step_seconds < setup.step.high_seconds
    assert all(each.step.step_seconds >= setup.step.step_seconds for each in plan.rollout.others)
    for term in (*setup.step.terms, *setup.held):
        assert evaluate(term.how).holds(float(term.amount)), term.how
    assert plan.launch.targets == ("trainer",)


def test_with_a_server_one_part_waits_for_the_other() -> None:
    setup = split(vllm_mode="server", generation_gpus=4)
    assert (setup.generation_gpus, setup.training_gpus) == (4, 4)
    trains, generates = setup.idle_seconds
    assert trains == setup.step.seconds_of(GENERATION)
    assert trains + generates == pytest.approx(setup.step.step_seconds)
    assert "weight_transfer" in {term.name for term in setup.step.terms}
    assert split(vllm_mode="colocate").idle_seconds == (0.0, 0.0)


MIXTURE = "Qwen/Qwen3-30B-A3B"


@pytest.mark.parametrize(("nodes", "most"), [(1, 4), (2, 4)])
def test_a_server_has_one_engine_of_a_dense_model(nodes: int, most: int) -> None:
    plan = planned(ON_8 | {"nodes": nodes}, vllm_mode="server")
    assert plan.rollout is not None
    splits = [plan.rollout.chosen, *plan.rollout.others]
    assert {each.engine.replicas for each in splits} == {1}
    assert max(each.engine.gpus for each in splits) == most
    assert split(vllm_mode="colocate").engine.replicas == 8


def test_a_server_of_a_mixture_may_have_several_engines() -> None:
    found = split(
        vllm_mode="server",
        generation_gpus=4,
        model=MIXTURE,
        method="lora",
        vllm_tensor_parallel_size=2,
    )
    assert found.engine.replicas == 2


def test_a_tensor_size_that_is_said_is_the_gpus_of_a_dense_server() -> None:
    found = split(vllm_mode="server", vllm_tensor_parallel_size=4)
    assert (found.generation_gpus, found.training_gpus, found.engine.replicas) == (4, 4, 1)


def test_a_reference_is_scored_where_beta_is_not_zero() -> None:
    without, beside = split(vllm_mode="colocate"), split(vllm_mode="colocate", beta=0.04)
    assert beside.step.step_seconds > without.step.step_seconds
    assert without.step.seconds_of(SCORING) > 0


def test_shorter_completions_take_less_and_do_not_change_what_is_held() -> None:
    longest, shorter = split(), split(mean_completion_length=300)
    assert shorter.step.seconds_of(GENERATION) < longest.step.seconds_of(GENERATION)
    assert shorter.training_bytes == longest.training_bytes


def test_a_mean_that_is_said_is_answered_with_the_tokens_that_training_pads_to() -> None:
    def padded(mean: int) -> tuple[int, list[str]]:
        request = parse_request(asked(mean_completion_length=mean))
        resolved, plan = suggest(request, allow_paths=False)
        assert plan.rollout is not None
        setup = plan.rollout.chosen
        said = [
            each.text
            for each in resolved.assumptions
            if each.field.endswith("mean_completion_length")
        ]
        return setup.trained_tokens, said

    (most, texts), (fewer, others) = padded(300), padded(60)
    assert (most, fewer) == (1024, math.ceil(60 * (math.log(512) + 0.5772)))
    assert "1,024" in texts[0]
    assert f"{fewer}" in others[0]


@pytest.mark.parametrize("recipe", [{"vllm_mode": "colocate"}, {"vllm_mode": "server"}])
def test_the_whole_step_stands_in_json_beside_its_training(recipe: dict[str, Any]) -> None:
    request = parse_request(asked(ON_8 | {"nodes": 2}, training_tokens=10**9, **recipe))
    answer = answer_suggestion(request, *suggest(request, allow_paths=False))
    whole, rollout, chosen = answer["whole_step"], answer["rollout"], answer["chosen"]
    time, held = whole["time"], whole["memory"]["phases"]
    assert time["step_seconds"] == rollout["step_seconds"] > chosen["time"]["step_seconds"]
    assert [each["name"] for each in time["terms"]] == list(rollout["phases"])
    assert sum(each["seconds"] for each in time["terms"]) == pytest.approx(time["step_seconds"])
    assert held["training"]["reserved_bytes"] == rollout["training_bytes"]
    assert held["generation"]["reserved_bytes"] == rollout["generating_bytes"]
    fuller = held[whole["memory"]["phase"]]["reserved_bytes"]
    assert (
        whole["memory"]["reserved_bytes"]
        == fuller
        == max(each["reserved_bytes"] for each in held.values())
    )
    gpus = rollout["training_gpus"] + rollout["generation_gpus"] * (rollout["mode"] == "server")
    run, alone = whole["training"], chosen["training"]
    assert run is not None
    assert alone is not None
    assert run["seconds"] == pytest.approx(
        run["start_up_seconds"] + run["steps"] * time["step_seconds"]
    )
    assert run["low_seconds"] < run["seconds"] < run["high_seconds"]
    assert run["gpu_hours"] == pytest.approx(run["seconds"] / 3600 * gpus)
    assert run["gpu_hours"] > alone["gpu_hours"]
    assert rollout["nodes"] == 2
    speed = whole["tokens_per_second_per_gpu"]
    assert speed == pytest.approx(rollout["tokens_per_second"] / gpus)


def test_a_node_that_only_generates_is_paid_for() -> None:
    on_p5 = {"instance": "p5.48xlarge", "nodes": 2}
    request = parse_request(asked(on_p5, training_tokens=10**9, vllm_mode="server"))
    answer = answer_suggestion(request, *suggest(request, allow_paths=False))
    run, alone = answer["whole_step"]["training"], answer["chosen"]["training"]
    assert run is not None
    assert alone is not None
    assert run["usd"] == pytest.approx(2 * (alone["usd"] or 0) * run["seconds"] / alone["seconds"])


def test_generate_of_transformers_needs_no_scoring_of_what_it_samples() -> None:
    setup = split({"gpu": "h100", "gpus_per_node": 8}, vllm_mode="none", global_batch_size=64)
    assert setup.step.seconds_of(SCORING) == 0
    assert setup.generation.at_once == setup.generation.sequences


@pytest.mark.parametrize(
    ("recipe", "field", "nearest"),
    [
        ({"num_generations": 7, "global_batch_size": 512}, "num_generations", "8"),
        ({"vllm_gpu_memory_utilization": 0.95}, "vllm_gpu_memory_utilization", "0.8"),
        ({"generation_gpus": 9}, "generation_gpus", "4"),
        ({"generation_gpus": 3}, "generation_gpus", "4"),
        ({"vllm_tensor_parallel_size": 3}, "vllm_tensor_parallel_size", "2"),
        (
            {"vllm_mode": "server", "generation_gpus": 2, "vllm_tensor_parallel_size": 4},
            "vllm_tensor_parallel_size",
            "2",
        ),
        ({"vllm_mode": "server", "vllm_tensor_parallel_size": 8}, "vllm_tensor_parallel_size", "4"),
        ({"vllm_mode": "server", "method": "qlora"}, "vllm_mode", "colocate"),
        ({"global_batch_size": 1}, "num_generations", "--global-batch-size 8"),
        ({"beta": 0.04, "reference_model": "none"}, "reference_model", "--beta 0"),
        ({"beta": 0.04, "reference_model": "shared"}, "reference_model", "loaded"),
        ({"reference_model": "loaded"}, "reference_model", "--beta 0.04"),
        ({"packed": True}, "packed", "--padded"),
        ({"precision": "fp8"}, "precision", "bf16-mixed"),
        ({"sequence_length": 1024, "max_completion_length": 1024}, "max_completion_length", "682"),
        ({"mean_completion_length": 5000}, "mean_completion_length", "1,024"),
        ({"vllm_mode": "none", "generation_gpus": 2}, "generation_gpus", "leave it out"),
        ({"vllm_mode": "colocate", "generation_gpus": 2}, "generation_gpus", "server"),
        ({"framework": "megatron"}, "framework", "torch"),
        ({"job": "finetune", "beta": 0.1}, "beta", "grpo"),
    ],
)
def test_what_cannot_be_names_its_field_and_the_nearest_value(
    recipe: dict[str, Any], field: str, nearest: str
) -> None:
    if field == "vllm_gpu_memory_utilization":
        recipe["vllm_mode"] = "colocate"
    with pytest.raises(PlannerError) as caught:
        planned(**recipe)
    assert caught.value.field == f"recipe.{field}"
    assert nearest in caught.value.hint


def test_one_gpu_has_no_server_and_of_several_nodes_one_generates() -> None:
    with pytest.raises(PlannerError) as caught:
        planned({"gpu": "h100"}, model="Qwen/Qwen2.5-0.5B", vllm_mode="server")
    assert caught.value.field == "recipe.vllm_mode"
    with pytest.raises(PlannerError) as caught:
        planned(ON_8 | {"nodes": 2}, generation_gpus=9)
    assert "--generation-gpus 4" in caught.value.hint


def test_a_model_that_is_divided_is_no_training_of_trl() -> None:
    request = asked() | {"strategy": {"tensor_parallel_size": 2}}
    with pytest.raises(InvalidInputError) as caught:
        suggest(parse_request(request), allow_paths=False)
    assert caught.value.field == "strategy.tensor_parallel_size"


def test_an_estimate_and_an_open_number_of_gpus_are_refused() -> None:
    with pytest.raises(UnsupportedError):
        answer_estimate(parse_request(asked() | {"strategy": {}}), allow_paths=False)
    with pytest.raises(UnsupportedError) as caught:
        suggest(parse_request(asked() | {"objective": "cost"}), allow_paths=False)
    assert caught.value.field == "objective"


@pytest.mark.parametrize("look", [memory_request, replicas_request, suggest_layout])
def test_what_looks_at_one_layout_refuses_grpo(look: Callable[..., object]) -> None:
    with pytest.raises(UnsupportedError) as caught:
        look(parse_request(asked()), allow_paths=False)
    assert caught.value.field == "recipe.job"


def test_the_answer_says_each_phase_and_each_split() -> None:
    request = parse_request(asked())
    answer = answer_suggestion(request, *suggest(request, allow_paths=False))
    rollout = answer["rollout"]
    terms = [term["seconds"] for phase in rollout["phases"].values() for term in phase]
    assert sum(terms) == pytest.approx(rollout["step_seconds"])
    assert rollout["engines"] * rollout["tensor_parallel_size"] == rollout["generation_gpus"]
    assert {each["mode"] for each in rollout["alternatives"]} <= {"server", "colocate"}
    assert answer["job"]["recipe"]["rollout"]["num_generations"] == 8


def test_layers_are_not_divided_and_the_usual_batch_is_no_warning() -> None:
    one = planned({"gpu": "rtx-4090", "gpus_per_node": 1}, model="Qwen/Qwen2.5-0.5B")
    assert "BAT001" not in {each.code for each in one.findings}
    divided = why_not(planned(), {"tensor_parallel_size": 2})
    assert [each.code for each in divided.findings] == ["LAY041"]


@pytest.mark.parametrize(
    ("cluster", "recipe"),
    [
        (ON_8, {"vllm_mode": "server", "generation_gpus": 2}),
        (ON_8 | {"nodes": 4}, {"vllm_mode": "server"}),
    ],
)
def test_a_batch_that_the_trainer_cannot_split_has_one_that_works(
    cluster: dict[str, Any], recipe: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        planned(cluster, **recipe)
    (size,) = re.findall(r"--global-batch-size (\d+)", refused.value.hint)
    assert planned(cluster, **recipe, global_batch_size=int(size)).rollout


def test_a_model_with_few_positions_has_completions_that_fit_them() -> None:
    assert split(model="gpt2").rollout.max_completion_length == 682
    with pytest.raises(InvalidInputError) as refused:
        planned(model="gpt2", max_completion_length=2048)
    assert refused.value.field == "recipe.max_completion_length"
    (tokens,) = re.findall(r"--max-completion-length (\d+)", refused.value.hint)
    assert planned(model="gpt2", max_completion_length=int(tokens)).rollout
    with pytest.raises(InvalidInputError) as refused:
        planned(model="gpt2", sequence_length=1)
    assert "max-completion-length" not in refused.value.hint


def test_training_is_padded_to_the_longest_completion_of_a_step() -> None:
    longest, shorter, shortest = (
        split(vllm_mode="colocate", mean_completion_length=mean).step.seconds_of(TRAINING)
        for mean in (None, 900, 64)
    )
    assert shorter == longest
    assert shortest < longest


def test_what_is_written_says_what_was_found() -> None:
    apart = split(ON_8 | {"nodes": 2}, vllm_mode="server", model="Qwen/Qwen2.5-1.5B")
    assert apart.has_own_node
    found = apart.rollout
    assert (found.vllm_mode, found.generation_gpus, apart.unused_gpus) == ("server", 4, 4)
    assert found.vllm_tensor_parallel_size == apart.engine.tensor_parallel_size
    assert not split(vllm_mode="server", generation_gpus=4).has_own_node


def test_vllm_is_written_for_the_gpus_that_it_is_built_for() -> None:
    amd = {"gpu": "mi300x", "gpus_per_node": 2}
    plan = planned(amd, model="gpt2", vllm_mode="colocate")
    assert plan.launch.refused["trainer"].field == "recipe.vllm_mode"
    assert planned(amd, model="gpt2", vllm_mode="none").launch.targets == ("trainer",)


def test_what_was_tried_where_nothing_fits_is_the_whole_step() -> None:
    job: dict[str, Any] = {"model": "Qwen/Qwen2.5-7B", "vllm_mode": "colocate"}
    cluster = {"gpu": "rtx-4090", "gpus_per_node": 2}
    with pytest.raises(NothingFitsError) as caught:
        planned(cluster, **job)
    (way,) = (each for each in caught.value.ways_out if each.flag == "--method qlora")
    whole = split(cluster, **job, method="qlora")
    assert way.step_seconds == pytest.approx(whole.step.step_seconds)
    assert way.reserved_bytes == round(whole.most_bytes)
