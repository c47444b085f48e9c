"""What a request leaves open of its software is decided with the layout; what it says holds."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from planner import answers
from planner.advice import choice
from planner.advice.choice import Contender
from planner.advice.plan import Plan
from planner.advice.rules import sentences
from planner.catalog.choice import prices, trusted_lead
from planner.core.errors import NothingFitsError, Remedy
from planner.core.units import format_seconds
from planner.domain.job import Job
from planner.domain.strategy import Offload
from planner.request.schema import Request, Resolved, parse_request, resolve
from planner.request.stacks import other_stacks, stack_of
from planner.targets.common import loads_weights

QWEN_ON_8_A100 = {
    "model": "Qwen/Qwen2.5-32B",
    "cluster": {"gpu": "a100-sxm-80gb", "gpus_per_node": 8},
    "recipe": {
        "framework": "deepspeed",
        "precision": "bf16-mixed",
        "sequence_length": 8192,
        "global_batch_size": 16,
    },
}
"""modelscope/ms-swift examples/train/full/qwen2_5_32b.sh: ZeRO-3 with Liger's loss, nothing offloaded."""
QWEN_ON_A_4090 = {
    "model": "Qwen/Qwen2.5-0.5B",
    "cluster": {"gpu": "rtx-4090", "gpus_per_node": 1},
    "recipe": {"sequence_length": 32768, "global_batch_size": 1, "framework": "accelerate"},
}
LLAMA_ON_A_4090 = {
    "model": "meta-llama/Llama-3.1-8B",
    "cluster": {"gpu": "rtx-4090", "gpus_per_node": 1},
    "recipe": {"method": "qlora"},
}
GPT2 = {"model": "gpt2", "cluster": {"gpus_per_node": 4}}
LLAMA_70B = {
    "model": "meta-llama/Llama-2-70b-hf",
    "cluster": {"gpu": "rtx-4090", "gpus_per_node": 8, "nodes": 8},
}


def asked(request: dict[str, Any], **changes: Any) -> tuple[Resolved, Plan]:
    recipe = {**request.get("recipe", {}), **changes.pop("recipe", {})}
    return answers.suggest(
        parse_request({**request, **changes, "recipe": recipe}), allow_paths=False
    )


def contenders(request: Request) -> list[Contender]:
    own = resolve(request, allow_paths=False)
    stacks = (own, *other_stacks(request, own, allow_paths=False))
    return list(choice.contenders([each.job for each in stacks], {}))


def decided(resolved: Resolved) -> dict[str, str]:
    """Return what is said of the software that nobody named."""
    names = {"recipe.framework", "recipe.compile", "recipe.loss"}
    return {each.field: each.text for each in resolved.assumptions if each.field in names}


# What nobody said


def test_a_bare_name_is_compiled_as_its_users_would() -> None:
    resolved, plan = asked(GPT2)
    recipe = plan.job.recipe
    assert (plan.job.framework.name, recipe.compile, recipe.loss) == ("torch", True, "standard")
    assert resolved.job.recipe == recipe
    assert decided(resolved) == {"recipe.compile": "compiled"}
    assert plan.launch.targets
    _, plain = asked(GPT2, recipe={"compile": False})
    assert not plain.job.recipe.compile
    assert 1.1 * plan.chosen.step_time.step_seconds < plain.chosen.step_time.step_seconds


def test_what_compiling_gains_is_told_of_the_same_framework() -> None:
    """Without it DeepSpeed is taken where nobody named torch."""
    _, plan = asked(GPT2)
    _, plain = asked(GPT2, recipe={"compile": False, "framework": "torch"})
    compiled, eager = plan.chosen.step_time.step_seconds, plain.chosen.step_time.step_seconds
    (gain,) = (each.message for each in plan.findings if each.code == "REC004")
    assert gain == sentences.said("REC004.compiled", eager=eager, longer=eager / compiled - 1)


@pytest.mark.parametrize(
    "said",
    [
        {"framework": "megatron"},
        {"framework": "deepspeed"},
        {"compile": False},
        {"loss": "chunked"},
        {"loss": "fused", "compile": False},
        {"framework": "torch", "loss": "standard"},
    ],
)
def test_what_is_said_holds(said: dict[str, Any]) -> None:
    resolved, plan = asked(GPT2, recipe=said)
    job = plan.job
    kept = {
        "framework": job.framework.name,
        "compile": job.recipe.compile,
        "loss": job.recipe.loss,
    }
    assert said.items() <= kept.items()
    assert not decided(resolved).keys() & {f"recipe.{name}" for name in said}


def test_the_fewest_things_are_switched_on_of_stacks_that_are_alike() -> None:
    """A fused loss beside a chunked one, and compiled blocks of a job that waits for its links."""
    cluster = {"gpu": "a100", "gpus_per_node": 4, "intra_node": {"bus_gb_per_s": 5}}
    recipe = {"global_batch_size": 32}
    request = {"model": "Qwen/Qwen2.5-32B", "cluster": cluster, "recipe": recipe}
    found = contenders(parse_request(request))
    torch = [each for each in found if each.job.framework.name == "torch"]
    best = choice.best_of_found(torch, "time")
    alike = [each for each in torch if each.cost_seconds <= 1.02 * best.cost_seconds]
    assert len(alike) > 1
    assert alike[0] is best
    assert best.cost_seconds <= 1.02 * min(each.cost_seconds for each in torch)


def test_every_stack_of_a_request_is_another_and_has_what_was_said() -> None:
    for recipe in ({}, {"loss": "fused"}, {"compile": True}, {"framework": "torch"}):
        request = parse_request({**GPT2, "recipe": recipe})
        own = resolve(request, allow_paths=False)
        found = [
            stack_of(each.job) for each in (own, *other_stacks(request, own, allow_paths=False))
        ]
        assert all(found.count(each) == 1 for each in found)
        assert all(each[name] == value for each in found for name, value in recipe.items())
        tools = {each["framework"] for each in found}
        assert {"torch"} <= tools <= {*prices().tools}
        assert recipe or len(tools) > 1


@pytest.mark.parametrize("field", ["gradient_reduce_dtype", "optimizer_in_backward"])
def test_what_speaks_of_one_framework_leaves_no_other_open(field: str) -> None:
    value = {"gradient_reduce_dtype": "fp32", "optimizer_in_backward": False}[field]
    request = parse_request({**GPT2, "recipe": {field: value}})
    own = resolve(request, allow_paths=False)
    others = other_stacks(request, own, allow_paths=False)
    assert {each.job.framework.name for each in others} == {"torch"}


# The loss


def test_logits_go_before_the_optimizer_does() -> None:
    resolved, plan = asked(QWEN_ON_8_A100)
    assert plan.chosen.strategy.family == "zero-3"
    assert plan.job.recipe.loss == resolved.job.recipe.loss == "fused"
    assert plan.launch.targets == ("trainer", "axolotl", "llama-factory")
    assert decided(resolved)["recipe.loss"] == "fused loss"


def test_a_loss_that_was_asked_for_stays() -> None:
    resolved, plan = asked(QWEN_ON_8_A100, recipe={"loss": "standard"})
    assert plan.job.recipe.loss == "standard"
    assert plan.chosen.strategy.offloads_optimizer
    assert "recipe.loss" not in decided(resolved)


@pytest.mark.parametrize("asks", ["optimizer+parameters", "optimizer"])
def test_offload_that_was_asked_for_stays(asks: str) -> None:
    """The loss is decided beside it: for time, not for room."""
    _, plan = asked(QWEN_ON_8_A100, strategy={"offload": asks})
    assert plan.chosen.strategy.offload == Offload(asks)
    assert plan.job.recipe.loss == "fused"
    said = {"loss": "standard", "compile": False}
    _, plain = asked(QWEN_ON_8_A100, strategy={"offload": asks}, recipe=said)
    assert plain.chosen.strategy.offload == Offload(asks)
    assert plain.job.recipe.loss == "standard"
    assert 1.02 * plan.chosen.step_time.step_seconds < plain.chosen.step_time.step_seconds


def test_where_nothing_fits_with_logits_something_may_without() -> None:
    with pytest.raises(NothingFitsError):
        asked(QWEN_ON_A_4090, recipe={"loss": "standard"})
    _, plan = asked(QWEN_ON_A_4090)
    assert plan.job.recipe.loss in {"fused", "chunked"}
    assert plan.chosen.fits
    assert plan.launch.targets


def remedies_of(request: dict[str, Any], **changes: Any) -> dict[str, Remedy]:
    with pytest.raises(NothingFitsError) as refused:
        asked(request, **changes)
    return {each.field: each for each in refused.value.remedies}


def test_the_longest_sequence_that_is_named_is_the_longest_that_gets_a_plan() -> None:
    named = int(
        remedies_of(LLAMA_ON_A_4090, recipe={"sequence_length": 131072})[
            "recipe.sequence_length"
        ].value
    )
    _, plan = asked(LLAMA_ON_A_4090, recipe={"sequence_length": named})
    assert plan.job.recipe.loss == "fused"
    assert "recipe.loss" not in remedies_of(LLAMA_ON_A_4090, recipe={"sequence_length": 2 * named})
    # With its logits it would fit no better than the sentence of a loss that was asked for says.
    standard = {"sequence_length": 131072, "loss": "standard"}
    asked_for = remedies_of(LLAMA_ON_A_4090, recipe=standard)
    assert int(asked_for["recipe.sequence_length"].value) < named


def test_the_memory_of_a_suggestion_is_that_of_its_loss() -> None:
    resolved, candidate = answers.memory_request(parse_request(QWEN_ON_8_A100), allow_paths=False)
    assert resolved.job.recipe.loss == "fused"
    assert not candidate.strategy.offloads_optimizer


# The framework


@cache
def seventy_billion() -> tuple[Resolved, Plan]:
    return asked(LLAMA_70B)


def test_another_framework_is_taken_where_it_is_surely_faster() -> None:
    """ZeRO-3 over Ethernet, offloaded, beside a pipeline that sends activations between nodes."""
    resolved, plan = seventy_billion()
    assert plan.launch.targets
    assert plan.job.framework.name == "megatron"
    assert plan.chosen.strategy.pipeline_parallel_size > 1
    assert plan.usual is not None
    assert plan.usual.strategy.offloads_optimizer
    assert 2 * plan.chosen.step_time.step_seconds < plan.usual.step_time.step_seconds
    seconds = format_seconds(plan.usual.step_time.step_seconds)
    said = f"megatron, as torch would take {seconds} per step"
    assert decided(resolved)["recipe.framework"] == said


def test_the_usual_framework_stays_without_a_lead_that_is_trusted() -> None:
    found = contenders(parse_request(GPT2))
    best = choice.best_of_found(found, "time")
    others = [each for each in found if each.job.framework.name != "torch" and each.is_written]
    assert others
    for each in others:
        lead = best.cost_seconds / each.cost_seconds - 1
        is_sure = each.candidate.step_time.high_seconds < best.candidate.step_time.low_seconds
        is_ahead = lead >= trusted_lead(each.job.framework.name)
        assert not (is_ahead and is_sure and each.keeps_weights)


def test_trained_weights_are_not_given_up_for_a_faster_framework() -> None:
    """Megatron-LM is faster still, and starts models of GPT-2's type from random weights."""
    request = {"model": "gpt2-xl", "cluster": {"gpu": "rtx-4090", "gpus_per_node": 8}}
    _, plan = asked(request)
    _, losing = asked(request, recipe={"framework": "megatron"})
    assert losing.chosen.step_time.step_seconds < plan.chosen.step_time.step_seconds
    assert plan.job.framework.name == "deepspeed"
    found = contenders(parse_request(request))
    untrained = [
        replace(each, result=replace(each.result, job=_untrained(each.job))) for each in found
    ]
    assert choice.best_of_found(untrained, "time").job.framework.name == "megatron"


def _untrained(job: Job) -> Job:
    return replace(job, model=replace(job.model, is_pretrained=False))


@pytest.mark.parametrize(
    "cluster",
    [
        {"gpu": "rtx-4090", "gpus_per_node": 8},
        {"gpu": "rtx-3090", "gpus_per_node": 1, "nodes": 8, "inter_node": "ethernet-1g"},
    ],
)
def test_nothing_is_offloaded_where_another_framework_divides_the_model(
    cluster: dict[str, Any],
) -> None:
    """PyTorch's pipelines have no files here; those of Megatron-LM have, from the trained weights."""
    _, plan = asked({"model": "meta-llama/Llama-2-7b-hf", "cluster": cluster})
    assert plan.launch.targets
    assert plan.usual is not None
    assert plan.usual.strategy.offloads_optimizer
    assert not plan.chosen.strategy.offloads_optimizer
    assert plan.job.framework.name == "megatron"
    assert plan.chosen.strategy.pipeline_parallel_size > 1
    assert loads_weights("megatron", config=plan.job.model.config, has_adapters=False)


def test_no_matrices_are_divided_over_a_slow_link_where_another_stack_does_without() -> None:
    """Decision: every layer would wait for it."""
    for gpu in ("a10g", "rtx-4090"):
        for model in ("Qwen/Qwen2.5-1.5B", "meta-llama/Llama-3.1-8B"):
            _, plan = asked({"model": model, "cluster": {"gpu": gpu, "gpus_per_node": 8}})
            assert plan.chosen.strategy.tensor_parallel_size == 1
            assert plan.chosen.strategy.context_parallel_size == 1


def test_the_usual_optimizer_by_its_name_leads_to_no_other_framework() -> None:
    request = parse_request({**GPT2, "recipe": {"optimizer": "adamw"}})
    _, plan = answers.suggest(request, allow_paths=False)
    assert (plan.job.framework.name, plan.job.recipe.optimizer) == ("torch", "adamw")
    assert {"recipe.optimizer": "adamw-fused"} in [dict(each.changes) for each in plan.offers]
