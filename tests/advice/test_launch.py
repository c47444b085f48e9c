"""What has launch files in place of a plan that has none."""

from dataclasses import replace
from typing import Any

import pytest

from planner.advice.launch import Instead, gives_up_weights
from planner.advice.plan import Plan, make_plan
from planner.answers import suggest
from planner.catalog import records
from planner.report.launch import instead_words
from planner.request.schema import parse_request, resolve
from planner.search.search import search
from planner.targets import launch

OPT = {
    "model": "facebook/opt-2.7b",
    "cluster": {"gpu": "a10g", "gpus_per_node": 4},
    "recipe": {"sequence_length": 512, "global_batch_size": 64, "precision": "bf16"},
}

DIVIDED = {
    "model": "meta-llama/Llama-3.1-8B",
    "cluster": {"gpu": "a100-40gb", "gpus_per_node": 8},
}
"""No GPU of it holds a replica."""


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


def test_what_the_scripts_do_not_run_is_changed() -> None:
    model = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
    recipe = {"precision": "fp16-mixed", "weights_dtype": "config"}
    instead = instead_of(planned({"model": model, "recipe": recipe}))
    assert instead.changes["recipe.weights_dtype"] == "fp32"
    assert instead.changes.keys() <= {
        "recipe.weights_dtype",
        "recipe.framework",
        "recipe.optimizer",
    }


def test_an_optimizer_that_steps_no_shards_gives_way_where_the_model_must_be_divided() -> None:
    instead = instead_of(planned(DIVIDED | {"recipe": {"optimizer": "muon"}}))
    assert instead.changes["recipe.optimizer"] == "adamw"
    assert instead.changes.keys() <= {"recipe.optimizer", "recipe.framework"}


def test_weights_in_the_configs_dtype_stay_in_it() -> None:
    """Megatron-LM and DeepSpeed would train an fp32 copy."""
    recipe = {"optimizer": "muon", "weights_dtype": "config"}
    instead = instead_of(planned(DIVIDED | {"recipe": recipe}))
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


def test_another_frameworks_plan_is_named_where_it_is_surely_faster_than_offload() -> None:
    """ZeRO-3 over Ethernet, offloaded, beside a pipeline that sends activations alone."""
    cluster = {"gpu": "rtx-4090", "gpus_per_node": 8, "nodes": 8}
    plan = planned({"model": "meta-llama/Llama-2-70b-hf", "cluster": cluster})
    assert plan.launch.targets
    assert plan.chosen.strategy.offloads_optimizer
    instead = plan.instead
    assert instead is not None
    assert instead.is_faster
    assert instead.changes == {"recipe.framework": "deepspeed", "recipe.optimizer": "adamw"}
    assert instead.candidate.strategy.family == "pp+zero-1+offload"
    assert instead.candidate.step_time.high_seconds < plan.chosen.step_time.low_seconds


def test_trained_weights_are_not_given_up_for_a_faster_framework() -> None:
    """Megatron-LM is faster still, and starts from random weights."""
    request = {"model": "meta-llama/Llama-3.1-8B", "cluster": {"instance": "p5.4xlarge"}}
    plan = planned(request)
    keeping, losing = (
        planned({**request, "recipe": {"framework": name, "optimizer": "adamw"}})
        for name in ("deepspeed", "megatron")
    )
    assert losing.chosen.step_time.step_seconds < keeping.chosen.step_time.step_seconds
    instead = plan.instead
    assert instead is not None
    assert instead.changes["recipe.framework"] == "deepspeed"
    assert not gives_up_weights(plan.job, instead)
    to_megatron = replace(instead, changes={"recipe.framework": "megatron"})
    assert gives_up_weights(plan.job, to_megatron)
    assert instead_words(plan, to_megatron).endswith("; its files start from random weights")
    untrained = replace(plan.job, model=replace(plan.job.model, is_pretrained=False))
    assert not gives_up_weights(untrained, to_megatron)


LLAMA_2 = "meta-llama/Llama-2-7b-hf"


@pytest.mark.parametrize(
    "cluster",
    [
        {"gpu": "rtx-4090", "gpus_per_node": 8},
        {"gpu": "rtx-3090", "gpus_per_node": 1, "nodes": 8, "inter_node": "ethernet-1g"},
    ],
)
def test_another_frameworks_plan_is_named_where_exchanges_take_most_of_a_step(
    cluster: dict[str, Any],
) -> None:
    """PyTorch's pipelines have no files here, those of DeepSpeed and Megatron-LM have."""
    plan = planned({"model": LLAMA_2, "cluster": cluster})
    assert plan.launch.targets
    assert not plan.chosen.strategy.offloads_optimizer
    instead = plan.instead
    assert instead is not None
    assert instead.is_faster
    assert "recipe.framework" in instead.changes
    assert 2 * instead.candidate.step_time.step_seconds < plan.chosen.step_time.step_seconds


def test_another_loss_is_named_where_it_makes_room_for_whole_replicas() -> None:
    cluster = {"gpu": "rtx-4060ti", "gpus_per_node": 2}
    request = {"model": "Qwen/Qwen2.5-0.5B", "cluster": cluster}
    recipe = {"sequence_length": 4096}
    instead = planned({**request, "recipe": recipe}).instead
    assert instead is not None
    assert instead.is_faster
    assert instead.changes == {"recipe.loss": "fused"}
    assert planned({**request, "recipe": recipe | {"loss": "fused"}}).chosen == instead.candidate


def test_another_loss_is_named_where_the_host_must_divide_every_operation() -> None:
    """Tensor parallelism by DTensors, a sequence at a time, beside ZeRO-3 that a fused loss makes fit."""
    request = {"model": "Qwen/Qwen2.5-32B", "cluster": {"gpu": "h100", "gpus_per_node": 8}}
    plan = planned(request)
    assert plan.chosen.strategy.tensor_parallel_size == 2
    assert plan.chosen.is_comfortable
    instead = plan.instead
    assert instead is not None
    assert instead.is_faster
    assert instead.changes == {"recipe.loss": "fused"}
    assert instead.candidate.strategy.tensor_parallel_size == 1


QWEN_32B = {
    "model": "Qwen/Qwen2.5-32B",
    "cluster": {"gpu": "h100", "gpus_per_node": 8},
}
"""With a fused loss, which no script has beside tensor parallelism, it fills the cards."""


def test_what_has_room_is_named_beside_a_plan_that_leaves_none() -> None:
    plan = planned({**QWEN_32B, "recipe": {"framework": "megatron"}})
    assert plan.launch.targets
    assert not plan.chosen.is_comfortable
    instead = plan.instead
    assert instead is not None
    assert instead.has_room
    assert not instead.is_faster
    assert instead.changes["recipe.framework"] == "torch"
    assert instead.candidate.is_comfortable
    assert instead_words(plan, instead).startswith("torch has room: ")


def test_another_loss_is_named_where_the_one_asked_for_offloads() -> None:
    plan = planned({**QWEN_32B, "recipe": {"loss": "chunked"}})
    assert plan.chosen.strategy.offloads_optimizer
    instead = plan.instead
    assert instead is not None
    assert instead.is_faster
    assert instead.changes == {"recipe.loss": "fused"}
    assert not instead.candidate.strategy.offloads_optimizer


def test_a_loss_that_adapters_have_no_files_for_gives_way_to_one_that_they_have() -> None:
    request = {
        "model": "meta-llama/Meta-Llama-3-8B",
        "cluster": {"gpu": "a10g", "gpus_per_node": 8},
    }
    recipe = {"method": "lora", "loss": "chunked"}
    instead = instead_of(planned({**request, "recipe": recipe}))
    assert instead.changes == {"recipe.loss": "fused"}
    assert planned({**request, "recipe": recipe | instead_recipe(instead)}).launch.targets


def instead_recipe(instead: Instead) -> dict[str, Any]:
    return {name.removeprefix("recipe."): value for name, value in instead.changes.items()}


@pytest.mark.parametrize("gpu", ["rtx-4090", "a100-sxm-80gb"])
def test_nothing_else_is_searched_where_a_replica_fits(
    monkeypatch: pytest.MonkeyPatch, gpu: str
) -> None:
    def searched(*_: object, **__: object) -> None:
        raise AssertionError("another search")

    monkeypatch.setattr("planner.advice.launch.chosen_layout", searched)
    cluster = {"gpu": gpu, "gpus_per_node": 8, "nodes": 2, "inter_node": "ethernet-1g"}
    assert planned({"model": "gpt2", "cluster": cluster}).instead is None


def test_flash_attention_on_an_older_card_has_no_files_but_sdpa_has() -> None:
    request = {"model": "gpt2", "cluster": {"gpu": "v100", "gpus_per_node": 2}}
    instead = instead_of(planned({**request, "recipe": {"attention": "flash"}}))
    assert instead.changes["recipe.attention"] == "sdpa"
    assert planned({**request, "recipe": {"attention": "sdpa"}}).launch.targets


def test_a_loss_without_logits_is_named_where_it_is_surely_faster() -> None:
    request: dict[str, Any] = {
        "model": "google/gemma-2-9b",
        "cluster": {"gpu": "v100", "gpus_per_node": 8},
    }
    plan = planned(request)
    assert plan.launch.targets
    assert plan.instead is not None
    assert plan.instead.is_faster
    assert plan.instead.changes["recipe.loss"] in {"chunked", "fused"}
    other = planned({**request, "recipe": instead_recipe(plan.instead)})
    assert other.launch.targets
    assert other.chosen == plan.instead.candidate


def test_a_loss_without_logits_gives_way_where_with_them_no_files_are_left() -> None:
    """Adapters are not divided over GPUs, and beside all logits a replica's shards do not fit."""
    request: dict[str, Any] = {
        "model": "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
        "cluster": {"gpu": "rtx-3070", "gpus_per_node": 2},
        "recipe": {"framework": "accelerate", "method": "qlora"},
    }
    instead = instead_of(planned(request))
    assert instead.changes["recipe.loss"] in {"chunked", "fused"}
    recipe = {**request["recipe"], **instead_recipe(instead)}
    assert planned({**request, "recipe": recipe}).launch.targets


def test_models_of_megatron_have_an_attention_of_their_own() -> None:
    cluster = {"gpu": "a100", "gpus_per_node": 8, "nodes": 48}
    recipe = {"framework": "megatron", "global_batch_size": 1536}
    plan = planned({"model": "bigscience/bloom", "cluster": cluster, "recipe": recipe})
    assert "transformers has no" not in plan.launch.reason
    assert "its arguments are known for" in plan.launch.reason
    changes = instead_of(plan).changes
    assert (changes["recipe.framework"], changes["recipe.attention"]) == ("deepspeed", "eager")


def test_where_no_change_gives_files_there_is_nothing_instead() -> None:
    plan = planned({"model": "gpt2", "cluster": {"gpu": "mi300x", "gpus_per_node": 2}})
    assert plan.instead is None


def test_what_is_named_in_another_framework_is_what_asking_for_it_gives() -> None:
    """Of Megatron's layouts on eight A10G the fastest without offload is tight, and one with it faster."""
    request: dict[str, Any] = {
        "model": "mistralai/Mistral-7B-v0.1",
        "cluster": {"instance": "g5.48xlarge"},
    }
    instead = planned(request).instead
    assert instead is not None
    recipe = instead_recipe(instead)
    chosen = planned({**request, "recipe": recipe}).chosen
    assert chosen.strategy == instead.candidate.strategy


def test_what_is_named_for_memory_is_the_smallest_that_has_files() -> None:
    request: dict[str, Any] = {
        "model": "google-bert/bert-base-cased",
        "cluster": {"gpu": "a100-80gb", "gpus_per_node": 2},
        "recipe": {"framework": "torchtitan", "global_batch_size": 32},
    }
    job = resolve(parse_request(request), allow_paths=False).job
    plan = make_plan(job, None, "memory")
    instead = instead_of(plan)
    recipe = {**request["recipe"], **instead_recipe(instead)}
    again = {**request, "recipe": recipe}
    chosen = make_plan(resolve(parse_request(again), allow_paths=False).job, None, "memory").chosen
    assert chosen.strategy == instead.candidate.strategy
    assert chosen.memory.reserved_bytes < planned(again).chosen.memory.reserved_bytes
    assert instead_words(plan, instead).startswith("the smallest with launch files: ")


def test_micro_batches_that_are_dropped_leave_the_batch_that_they_made() -> None:
    request: dict[str, Any] = {
        "model": "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
        "cluster": {"instance": "g5.8xlarge", "nodes": 8},
        "recipe": {"method": "qlora", "framework": "composer"},
        "strategy": {"micro_batch_size": 3, "gradient_accumulation_steps": 5},
    }
    _, plan = suggest(parse_request(request), allow_paths=False)
    instead = instead_of(plan)
    assert instead.drops_pins
    assert instead.changes["recipe.global_batch_size"] == 3 * 5 * 8
