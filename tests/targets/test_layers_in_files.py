"""Layers that differ from their neighbours: targets write them or refuse them by name."""

from typing import Any

import pytest
from conftest import JobMaker
from run_specs import EVERY, script_of

from planner import answers
from planner.domain.recompute_modules import number_of
from planner.domain.strategy import Layout, Recompute
from planner.generate.write_bundle import bundle_files
from planner.request.schema import parse_request
from planner.targets import some_layers


def planned(framework: str, **strategy: Any) -> Any:
    request = {
        "model": "meta-llama/Llama-3.1-8B",
        "cluster": {"gpu": "h100", "gpus_per_node": 8},
        "recipe": {"framework": framework, "sequence_length": 4096, "global_batch_size": 64},
        "strategy": {"recompute": "full", **strategy},
    }
    return answers.suggest(parse_request(request), allow_paths=False)


def test_megatron_recomputes_a_block_of_each_stage() -> None:
    resolved, plan = planned("megatron", recompute_layers=5)
    files = bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)
    script = files["megatron/launch.sh"]
    assert "--recompute-method block" in script
    assert "--recompute-num-layers 5" in script


def test_the_script_of_pytorch_alone_recomputes_the_first_layers() -> None:
    resolved, plan = planned("torch", recompute_layers=5, family="zero-3")
    assert set(plan.launch.targets) == {"torchrun"}
    assert "all layers or none" in plan.launch.unwritten["trainer"]
    files = bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)
    assert "RECOMPUTE_LAYERS = 5" in script_of(files, "torchrun")


@pytest.mark.parametrize("framework", ["deepspeed", "torchtitan"])
def test_activations_stay_on_the_gpu_in_most_files(framework: str) -> None:
    _, plan = planned(framework, activation_offload_layers=4)
    assert plan.launch.targets == ()
    assert "activations stay on the GPU" in plan.launch.reason


def test_the_script_of_pytorch_alone_has_checkpoints_wait_in_host_memory() -> None:
    resolved, plan = planned("torch", activation_offload_layers=5, family="zero-3")
    assert set(plan.launch.targets) == {"torchrun"}
    files = bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)
    assert "OFFLOADED_LAYERS = 5" in script_of(files, "torchrun")


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        ({"recompute": "none"}, "what recomputed blocks keep"),
        ({"recompute_layers": 3}, "no more layers than it recomputes"),
        ({"tensor_parallel_size": 2}, "a model in parts"),
    ],
)
def test_other_activations_stay_on_the_gpu(strategy: dict[str, Any], reason: str) -> None:
    _, plan = planned("torch", **{"activation_offload_layers": 4, **strategy})
    assert reason in plan.launch.unwritten["torchrun"]


def test_megatron_has_activations_of_some_layers_wait_in_host_memory() -> None:
    resolved, plan = planned("megatron", activation_offload_layers=4, recompute="none")
    files = bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)
    script = files["megatron/launch.sh"]
    assert "--cpu-offloading" in script.split()
    assert "--cpu-offloading-num-layers 4" in script


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        ({}, "where none are recomputed"),
        ({"recompute": "none", "pipeline_parallel_size": 2}, "models that are one stage"),
        ({"recompute": "none", "activation_offload_layers": 32}, "fewer layers than there are"),
    ],
)
def test_what_megatron_refuses_beside_them_is_said(strategy: dict[str, Any], reason: str) -> None:
    _, plan = planned("megatron", **{"activation_offload_layers": 4, **strategy})
    assert reason in plan.launch.unwritten["megatron"]


MIXTRAL = "mistralai/Mixtral-8x7B-v0.1"


def test_megatron_recomputes_the_modules_that_are_named() -> None:
    resolved, plan = planned(
        "megatron", recompute="selective", recompute_modules=["mlp", "core_attn"]
    )
    answer = answers.answer_plan(resolved, plan, None)
    files = bundle_files(plan, answer, EVERY)
    assert "--recompute-modules core_attn mlp\n" in files["megatron/launch.sh"]
    assert "--recompute-granularity selective\n" in files["megatron/launch.sh"]
    assert answer["chosen"]["strategy"]["recompute_modules"] == ["core_attn", "mlp"]


def test_without_names_the_flag_is_left_out() -> None:
    resolved, plan = planned("megatron", recompute="selective")
    files = bundle_files(plan, answers.answer_plan(resolved, plan, None), EVERY)
    assert "--recompute-granularity selective" in files["megatron/launch.sh"]
    assert "--recompute-modules" not in files["megatron/launch.sh"]


@pytest.mark.parametrize(
    ("recipe", "model", "modules", "reason"),
    [
        ({"precision": "fp8"}, "meta-llama/Llama-3.1-8B", ["layernorm"], "by their history"),
        ({"precision": "fp8"}, MIXTRAL, ["moe_act"], "by their history"),
        ({"precision": "fp16-mixed"}, MIXTRAL, ["moe_act"], "in fp16-mixed its experts run one"),
        ({"precision": "fp8", "fp8_recipe": "tensorwise"}, MIXTRAL, ["moe_act"], ""),
        ({"precision": "fp8"}, MIXTRAL, ["moe"], ""),
    ],
)
def test_modules_that_megatron_refuses_beside_a_precision(
    make_job: JobMaker, recipe: dict[str, str], model: str, modules: list[str], reason: str
) -> None:
    job = make_job(model, gpus=8, gpu="h100", recipe={"framework": "megatron", **recipe})
    layout = Layout(
        data_parallel_shard_size=8,
        zero_stage=1,
        recompute=Recompute.SELECTIVE,
        recompute_modules=number_of(modules),
    )
    said = [each.reason for each in some_layers.modules(job, layout) if each.broken]
    assert [part for part in said if reason in part] == said
    assert bool(said) == bool(reason)
