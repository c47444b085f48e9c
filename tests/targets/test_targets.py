"""What the judges say of a table is what they say of each row, and what generate does with it."""

from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from conftest import JobMaker
from run_specs import EVERY

from planner import answers
from planner.advice.plan import Plan
from planner.answers.shapes import SuggestionAnswer
from planner.catalog import records
from planner.core.errors import InvalidInputError
from planner.domain.strategy import Layout, num_rows, rows
from planner.generate import TARGETS
from planner.generate.write_bundle import bundle_files
from planner.request.schema import parse_request, resolve
from planner.search.space import strategies
from planner.targets import JUDGES, is_writable, launch, refusals, targets_of
from planner.targets.optimizers import optimizers

ENCODER = "google-bert/bert-base-uncased"
MODELS = {
    "openai-community/gpt2": 512,
    "meta-llama/Llama-3.1-8B": 4096,
    "microsoft/phi-2": 1024,
    ENCODER: 512,
    "Qwen/Qwen3-30B-A3B": 2048,
    "mistralai/Mistral-7B-v0.1": 8192,
    "Qwen/Qwen1.5-MoE-A2.7B": 2048,
}
RECIPES: tuple[dict[str, Any], ...] = (
    {},
    {"precision": "bf16", "attention": "flash"},
    {"precision": "fp16-mixed", "attention": "eager"},
    {"precision": "fp8"},
    {"weights_dtype": "config"},
)
ADAPTERS: tuple[dict[str, Any], ...] = (
    {"method": "lora"},
    {"method": "qlora", "lora": {"double_quantization": True}},
)
SAMPLED = 10
"""Rows of a search table that are written one by one."""


@pytest.fixture(scope="module")
def planned() -> tuple[Plan, SuggestionAnswer]:
    resolved, plan = answers.suggest(parse_request({"model": "gpt2"}), allow_paths=False)
    return plan, answers.answer_plan(resolved, plan, None)


def test_every_optimizer_of_torch_is_written() -> None:
    assert optimizers().keys() == records.framework("torch").optimizers.keys()


def test_every_target_is_judged_and_has_a_framework() -> None:
    assert set(JUDGES) == set(TARGETS)
    assert {name for each in records.framework_names() for name in targets_of(each)} == set(TARGETS)


@pytest.mark.parametrize("framework", records.framework_names())
@pytest.mark.parametrize("model", MODELS)
def test_a_row_is_writable_where_generate_writes_it(
    model: str, framework: str, planned: tuple[Plan, dict[str, Any]]
) -> None:
    plan, answer = planned
    dice = Random(f"{model} {framework}")
    known = records.framework(framework).precisions
    own = RECIPES if model == ENCODER else (*RECIPES, *ADAPTERS)
    recipes = [recipe for recipe in own if recipe.get("precision", "bf16") in known]
    for recipe, nodes in product(recipes, (1, 2)):
        common = {"sequence_length": MODELS[model], "global_batch_size": 64}
        request = {
            "model": model,
            "cluster": {"gpu": "h100", "gpus_per_node": 8, "nodes": nodes},
            "recipe": {**common, **recipe, "framework": framework},
        }
        job = resolve(parse_request(request), allow_paths=False).job
        table = strategies(job, {})
        count = num_rows(table)
        which = np.array(sorted(dice.sample(range(count), min(SAMPLED, count))), dtype=int)
        column = is_writable(job, table)
        assert column.tolist() == is_writable_alone(job, table)
        for row in which:
            layout = table.at(int(row))
            launched = launch(job, layout)
            assert bool(column[row]) == bool(launched.targets), launched.reason
            assert set(launched.targets) == set(targets_of(framework)) - set(refusals(job, layout))
            chosen = replace(plan.chosen, strategy=layout)
            one = replace(plan, job=job, chosen=chosen, launch=launched)
            assert bool(written(one, answer)) == bool(column[row])


def written(plan: Plan, answer: dict[str, Any]) -> dict[str, str]:
    try:
        return bundle_files(plan, answer, EVERY)
    except InvalidInputError:
        return {}


def is_writable_alone(job: Any, table: Any) -> list[bool]:
    """Return what is said of the rows a half at a time: no row knows another."""
    middle = num_rows(table) // 2
    halves = (np.arange(middle), np.arange(middle, num_rows(table)))
    return [bool(said) for half in halves for said in is_writable(job, rows(table, half))]


IN_8_BIT: dict[str, Any] = {
    "model": "meta-llama/Llama-3.1-8B",
    "cluster": {"gpu": "h100", "gpus_per_node": 8},
    "recipe": {"precision": "fp8", "framework": "torchtitan"},
}


@pytest.mark.parametrize(
    ("request_", "reason", "field"),
    [
        ({"recipe": {"method": "qlora", "framework": "megatron"}}, "no adapters", "recipe.method"),
        (
            {
                "model": "meta-llama/Llama-3.1-8B",
                "cluster": {"gpu": "h100", "gpus_per_node": 8},
                "recipe": {"method": "lora", "framework": "torchtitan"},
            },
            "adapters are not read",
            "recipe.method",
        ),
        (
            {
                "recipe": {
                    "weights_dtype": "config",
                    "precision": "fp16-mixed",
                    "framework": "torch",
                }
            },
            "needs weights in fp32",
            "recipe.weights_dtype",
        ),
        (
            {"recipe": {"optimizer": "paged-adamw-8bit"}, "strategy": {"zero_stage": 3}},
            "does not step the shards",
            "recipe.optimizer",
        ),
        (
            {"recipe": {"attention": "sdpa"}, "model": "google/gemma-2-2b"},
            "no sdpa attention",
            "recipe.attention",
        ),
        (IN_8_BIT, "8-bit matmuls by rowwise or mxfp8", "recipe.fp8_recipe"),
        (
            {
                **IN_8_BIT,
                "recipe": {**IN_8_BIT["recipe"], "fp8_recipe": "rowwise", "compile": False},
            },
            "where blocks are compiled",
            "recipe.compile",
        ),
        ({"recipe": {"framework": "composer"}}, "not for composer yet", "recipe.framework"),
        ({"model": "microsoft/resnet-50"}, "not of models of type resnet", "model"),
        (
            {"model": {"model_type": "convnext"}, "strategy": {"recompute": "full"}},
            "recomputes nothing in models of type convnext",
            "strategy.recompute",
        ),
        ({"model": "openai/clip-vit-base-patch32"}, "no head to train", "recipe.task"),
        ({"cluster": {"gpu": "gaudi2", "gpus_per_node": 2}}, "Gaudi build", "cluster.gpu"),
        (
            {
                "cluster": {"gpu": "mi300x", "gpus_per_node": 2},
                "recipe": {"framework": "megatron"},
            },
            "AMD's forks of Transformer Engine",
            "cluster.gpu",
        ),
    ],
)
def test_what_no_target_writes_is_refused_by_all_of_them(
    request_: dict[str, Any], reason: str, field: str
) -> None:
    request = {"model": "TinyLlama/TinyLlama-1.1B-Chat-v1.0", **request_}
    resolved, plan = answers.suggest(parse_request(request), allow_paths=False)
    assert not plan.launch.targets
    assert reason in plan.launch.reason
    assert set(plan.launch.refused) == set(targets_of(plan.job.framework.name)) or (
        field == "recipe.framework"
    )
    answer = answers.answer_plan(resolved, plan, None)
    assert answer["launch"]["targets"] == []
    assert reason in next(iter(answer["launch"]["unwritten"].values()))
    with pytest.raises(InvalidInputError) as caught:
        bundle_files(plan, answer, EVERY)
    assert caught.value.field == field


def test_every_vendor_of_a_gpu_is_known() -> None:
    vendors = {records.gpu(name).vendor for name in records.gpu_names()}
    assert {name for name in vendors if records.vendor(name).has_launch_files} == {"nvidia", "amd"}
    for name in vendors:
        assert set(records.vendor(name).unwritten) <= set(TARGETS)


def test_megatron_bridge_writes_adapters_that_pretrain_gpt_has_not(make_job: JobMaker) -> None:
    def refused(model: str = "Qwen/Qwen3-30B-A3B", **recipe: Any) -> set[str]:
        wish = {"framework": "megatron", "global_batch_size": 16, "sequence_length": 512, **recipe}
        job = make_job(model, gpus=4, recipe=wish)
        return set(
            refusals(
                job, Layout(data_parallel_shard_size=4, zero_stage=1, gradient_accumulation_steps=4)
            )
        )

    assert refused(method="lora") == {"megatron"}
    assert refused() == {"megatron-bridge"}
    both = {"megatron", "megatron-bridge"}
    assert refused(method="qlora") == both
    assert refused("gpt2", method="lora") == both
    assert refused("meta-llama/Llama-2-7b-hf", method="lora", precision="fp32") == both


@pytest.mark.parametrize(
    ("config", "tensor", "reason"),
    [
        ({"model_type": "mixtral"}, 8, ""),
        ({"model_type": "qwen2_moe"}, 8, ""),  # 1408 columns: 176 each
        ({"model_type": "qwen2_moe", "moe_intermediate_size": 1400}, 2, "multiples of 8"),
        ({"model_type": "deepseek_v3"}, 2, "no attention of deepseek_v3"),
    ],
)
def test_experts_are_divided_where_their_columns_are_multiplied_together(
    make_job: JobMaker, config: dict[str, Any], tensor: int, reason: str
) -> None:
    job = make_job(config, gpus=8, recipe={"framework": "torch", "sequence_length": 512})
    layout = Layout(tensor_parallel_size=tensor, data_parallel_shard_size=8 // tensor, zero_stage=3)
    said = refusals(job, layout, ["torchrun"])
    assert bool(said) == bool(reason)
    assert all(reason in breach.reason for breach in said.values())


def test_trainer_leaves_replicas_of_fp32_experts_to_the_script_that_rounds_them(
    make_job: JobMaker,
) -> None:
    def refused(layout: Layout, **recipe: Any) -> set[str]:
        wish = {"framework": "torch", "sequence_length": 512, "global_batch_size": 16, **recipe}
        job = make_job("Qwen/Qwen3-30B-A3B", gpus=2, recipe=wish)
        return set(refusals(job, layout, ["torchrun", "trainer"]))

    replicas = Layout(data_parallel_replicate_size=2, gradient_accumulation_steps=8)
    shards = Layout(data_parallel_shard_size=2, zero_stage=3, gradient_accumulation_steps=8)
    assert refused(replicas) == {"trainer"}
    assert refused(shards) == refused(replicas, method="lora") == set()


@pytest.mark.parametrize(("gpu", "is_able"), [("p40", False), ("gtx-1080ti", False), ("t4", True)])
def test_blocks_are_compiled_for_cards_that_the_compiler_has_kernels_for(
    gpu: str, *, is_able: bool
) -> None:
    body = {"model": "gpt2", "cluster": {"gpu": gpu}, "recipe": {"compile": True}}
    resolved, plan = answers.suggest(parse_request(body), allow_paths=False)
    assert plan.launch.targets
    assert plan.job.recipe.compile == is_able
    said = [each.text for each in resolved.assumptions if each.field == "recipe.compile"]
    reason = "PyTorch's compiler has no kernels for cards older than Volta"
    told = [] if is_able else [f"no torch.compile, though asked for: {reason}"]
    assert said == told
    assert "REC004" not in {finding.code for finding in plan.findings}


def test_each_target_says_its_own_reason() -> None:
    request = {
        "model": "meta-llama/Llama-3.2-1B",
        "cluster": {"gpus_per_node": 2},
        "recipe": {"optimizer": "lion"},
    }
    job = resolve(parse_request(request), allow_paths=False).job
    reason = launch(job, Layout(tensor_parallel_size=2)).reason
    said = "torchrun: a model that is divided is stepped by adamw, not lion; trainer: "
    assert reason.startswith(said)
