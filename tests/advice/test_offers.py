"""What is the asker's to change: another tool, other numbers, or what has files where the plan has none."""

from typing import Any

import pytest
from conftest import JobMaker

from planner import answers
from planner.advice.offers import Offer
from planner.advice.plan import Plan, make_plan
from planner.catalog import records
from planner.catalog.choice import trusted_lead
from planner.report.launch import offer_words
from planner.request.schema import parse_request
from planner.search.search import search
from planner.targets import launch

OPT = {
    "model": "facebook/opt-2.7b",
    "cluster": {"gpu": "a10g", "gpus_per_node": 4},
    "recipe": {
        "sequence_length": 512,
        "global_batch_size": 64,
        "precision": "bf16",
        "framework": "torch",
        "compile": False,
    },
}
DIVIDED = {
    "model": "meta-llama/Llama-3.1-8B",
    "cluster": {"gpu": "a100-40gb", "gpus_per_node": 8},
}
"""No GPU of it holds a replica."""
LLAMA, XL = "meta-llama/Llama-2-7b-hf", "gpt2-xl"
XL_ON_4_A100 = {"model": XL, "cluster": {"gpu": "a100", "gpus_per_node": 4}}
QWEN_32B = {"model": "Qwen/Qwen2.5-32B", "cluster": {"gpu": "h100", "gpus_per_node": 8}}


def planned(request: dict[str, Any], **changes: Any) -> Plan:
    recipe = {**request.get("recipe", {}), **changes.pop("recipe", {})}
    asked = parse_request({**request, **changes, "recipe": recipe})
    return answers.suggest(asked, allow_paths=False)[1]


def nearest(plan: Plan) -> Offer:
    assert not plan.launch.targets
    assert plan.offers
    return plan.offers[0]


def as_asked(request: dict[str, Any], offer: Offer) -> dict[str, Any]:
    """Return the request with what an offer changes."""
    recipe = {name.removeprefix("recipe."): value for name, value in offer.changes.items()}
    kept = {name: value for name, value in request.items() if name not in offer.dropped}
    return {**kept, "recipe": {**request.get("recipe", {}), **recipe}}


WITHOUT_FILES: dict[str, dict[str, Any]] = {
    "pins": {**OPT, "strategy": {"tensor_parallel_size": 2}},
    "a framework": {"model": "gpt2", "recipe": {"framework": "nanotron"}},
    "adapters": {"model": "gpt2", "recipe": {"method": "lora", "framework": "megatron"}},
    "an optimizer": {**DIVIDED, "recipe": {"optimizer": "muon"}},
    "weights in the config's dtype": {
        **DIVIDED,
        "recipe": {"optimizer": "muon", "weights_dtype": "config"},
    },
    "an attention": {
        "model": "gpt2",
        "cluster": {"gpu": "v100", "gpus_per_node": 2},
        "recipe": {"attention": "flash"},
    },
    "a loss": {
        "model": "google/gemma-2-2b",
        "cluster": {"gpu": "a10g", "gpus_per_node": 8},
        "recipe": {"method": "lora", "loss": "chunked"},
    },
    "a pipeline": {
        "model": "Qwen/Qwen3-30B-A3B",
        "cluster": {"gpu": "h200", "gpus_per_node": 8},
        "recipe": {"framework": "nanotron", "global_batch_size": 64, "sequence_length": 2048},
        "strategy": {"pipeline_parallel_size": 2},
    },
    "the least memory": {
        "model": "google-bert/bert-base-cased",
        "cluster": {"gpu": "a100-80gb", "gpus_per_node": 2},
        "recipe": {"framework": "torchtitan", "global_batch_size": 32},
        "objective": "memory",
    },
}
"""By what stands against files."""


@pytest.mark.parametrize("what", WITHOUT_FILES)
def test_what_is_offered_in_place_of_a_plan_is_what_asking_for_it_gives(what: str) -> None:
    request = WITHOUT_FILES[what]
    offer = nearest(planned(request))
    there = planned(as_asked(request, offer))
    assert there.launch.targets
    assert there.chosen.strategy == offer.candidate.strategy
    assert there.chosen.step_time.step_seconds == offer.candidate.step_time.step_seconds


def test_what_can_be_written_needs_nothing_in_its_place() -> None:
    plan = planned(OPT)
    assert plan.launch.targets
    assert all(each.reason for each in plan.offers)


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
    offer = nearest(planned(WITHOUT_FILES["pins"]))
    assert offer.dropped == ("strategy",)
    assert offer.candidate.strategy.tensor_parallel_size == 1


def test_pins_that_another_framework_writes_are_kept() -> None:
    offer = nearest(planned(WITHOUT_FILES["a pipeline"]))
    assert offer.changes["recipe.framework"] in records.framework_names()
    assert not offer.dropped
    assert offer.candidate.strategy.pipeline_parallel_size == 2


@pytest.mark.parametrize("what", ["an optimizer", "weights in the config's dtype"])
def test_an_optimizer_that_steps_no_shards_gives_way_where_the_model_must_be_divided(
    what: str,
) -> None:
    request = WITHOUT_FILES[what]
    offer = nearest(planned(request))
    assert offer.changes["recipe.optimizer"] == "adamw-fused"
    there = planned(as_asked(request, offer)).job
    assert there.recipe.weights_dtype == request["recipe"].get("weights_dtype", "fp32")


def test_a_framework_that_cannot_run_what_is_said_is_not_taken_for_its_files() -> None:
    """fp16 over weights in bf16: PyTorch's scripts do not run it, and nobody's is it that others do."""
    model = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
    recipe = {"precision": "fp16-mixed", "weights_dtype": "config", "framework": "torch"}
    offer = nearest(planned({"model": model, "recipe": recipe}))
    assert (
        offer.changes["recipe.precision"] != "fp16-mixed" or "recipe.weights_dtype" in offer.changes
    )


def test_flash_attention_on_an_older_card_has_no_files_but_sdpa_has() -> None:
    offer = nearest(planned(WITHOUT_FILES["an attention"]))
    assert offer.changes["recipe.attention"] == "sdpa"


def test_a_loss_that_adapters_have_no_files_for_gives_way_to_one_that_they_have() -> None:
    assert nearest(planned(WITHOUT_FILES["a loss"])).changes["recipe.loss"] == "fused"


def test_models_of_megatron_have_an_attention_of_their_own() -> None:
    cluster = {"gpu": "a100", "gpus_per_node": 8, "nodes": 48}
    recipe = {"framework": "megatron", "job": "pretrain"}
    plan = planned({"model": "bigscience/bloom", "cluster": cluster, "recipe": recipe})
    assert "transformers has no" not in plan.launch.reason
    assert "its arguments are known for" in plan.launch.reason
    assert nearest(plan).changes["recipe.attention"] == "eager"


@pytest.mark.parametrize(
    "request_",
    [
        {"model": "microsoft/resnet-50"},
        {"model": "gpt2", "cluster": {"gpu": "gaudi2", "gpus_per_node": 8}},
    ],
)
def test_where_no_change_gives_files_there_is_no_offer(request_: dict[str, Any]) -> None:
    plan = planned(request_)
    assert not plan.launch.targets
    assert not plan.offers


def test_micro_batches_that_are_dropped_leave_the_batch_that_they_made() -> None:
    request: dict[str, Any] = {
        "model": "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
        "cluster": {"instance": "g5.8xlarge", "nodes": 8},
        "recipe": {"method": "qlora", "framework": "composer"},
        "strategy": {"micro_batch_size": 3, "gradient_accumulation_steps": 5},
    }
    offer = nearest(planned(request))
    batch = planned(as_asked(request, offer)).job.recipe.global_batch_size
    assert batch == 3 * 5 * 8


# Beside a plan that has files


def test_another_tool_is_offered_by_a_trusted_lead_alone() -> None:
    requests: list[dict[str, Any]] = [
        {"model": "gpt2", "cluster": {"gpus_per_node": 4}},
        XL_ON_4_A100,
        {"model": LLAMA, "cluster": {"gpu": "rtx-4090", "gpus_per_node": 8}},
        {"model": XL, "cluster": {"gpu": "rtx-3090", "gpus_per_node": 1}},
        {"model": LLAMA, "cluster": {"gpu": "h100", "gpus_per_node": 8}},
        {"model": "google-bert/bert-base-cased", "cluster": {"gpu": "t4", "gpus_per_node": 4}},
    ]
    seen = []
    for request in requests:
        plan = planned(request)
        for each in plan.offers:
            if "recipe.framework" not in each.changes:
                continue
            name = each.changes["recipe.framework"]
            lead = float(plan.chosen.step_time.step_seconds / each.candidate.step_time.step_seconds)
            assert lead - 1 >= trusted_lead(name)
            assert each.reason.startswith("another tool")
            there = planned(request, recipe={"framework": name})
            assert there.chosen.strategy == each.candidate.strategy
            seen.append(name)
    assert 0 < len(seen) < len(requests)


def test_files_that_start_from_random_weights_are_said_to() -> None:
    """A model by name is trained further, which Megatron-LM's own arguments do not."""
    plan = planned(XL_ON_4_A100)
    (words,) = (
        offer_words(plan, each) for each in plan.offers if "recipe.framework" in each.changes
    )
    assert words.endswith("; another tool, whose files start from random weights")
    untrained = planned(XL_ON_4_A100, recipe={"job": "pretrain"})
    assert any("recipe.framework" in each.changes for each in untrained.offers)
    assert all("random weights" not in each.reason for each in untrained.offers)


def test_what_spares_the_host_is_offered_in_whichever_framework_has_it() -> None:
    """DeepSpeed offloads here; the scripts of PyTorch step an 8-bit AdamW on the GPU."""
    request = {"model": "gpt2-xl", "cluster": {"gpu": "rtx-3090"}}
    plan = planned(request)
    assert plan.chosen.strategy.offloads_optimizer
    (offer,) = (each for each in plan.offers if "recipe.optimizer" in each.changes)
    assert offer.changes == {"recipe.optimizer": "adamw-8bit"}
    asked = planned(request, recipe={"optimizer": "adamw-8bit"})
    assert asked.chosen.strategy == offer.candidate.strategy
    assert not asked.chosen.strategy.offloads_optimizer
    assert asked.job.framework.name != plan.job.framework.name


def test_other_numbers_are_offered_and_never_taken() -> None:
    request = {"model": "gpt2", "cluster": {"gpus_per_node": 4}}
    plan = planned(request)
    assert plan.job.recipe.precision == "bf16-mixed"
    (offer,) = (each for each in plan.offers if each.changes == {"recipe.precision": "bf16"})
    assert offer.reason == "no fp32 copy of the weights"
    assert 1.05 * offer.candidate.step_time.step_seconds <= plan.chosen.step_time.step_seconds
    asked = planned(request, recipe={"precision": "bf16"})
    assert asked.chosen.strategy == offer.candidate.strategy


def test_an_8_bit_optimizer_is_offered_where_the_plan_with_it_spares_the_host(
    make_job: JobMaker,
) -> None:
    plan = make_plan(make_job(XL, gpus=1, gpu="rtx-3090"))
    assert plan.chosen.strategy.offloads_optimizer
    (offer,) = (each for each in plan.offers if each.changes == {"recipe.optimizer": "adamw-8bit"})
    assert not offer.candidate.strategy.offloads_optimizer
    smaller = make_plan(make_job(XL, gpus=1, gpu="rtx-3090", recipe={"optimizer": "adamw-8bit"}))
    assert smaller.launch.targets
    assert smaller.chosen.strategy == offer.candidate.strategy


@pytest.mark.parametrize(
    ("framework", "has_adapters"),
    [("torch", True), ("deepspeed", True), ("megatron", True), ("torchtitan", False)],
)
def test_adapters_are_offered_beside_offload_where_the_framework_has_some(
    make_job: JobMaker, framework: str, *, has_adapters: bool
) -> None:
    arguments = {"gpus": 1, "gpu": "a100-80gb"}
    plan = make_plan(make_job(LLAMA, **arguments, recipe={"framework": framework}))
    assert plan.chosen.strategy.offloads_optimizer
    offered = {each.changes.get("recipe.method") for each in plan.offers}
    assert ("lora" in offered) == has_adapters
    if has_adapters:
        recipe = {"framework": framework, "method": "lora"}
        asked = make_plan(make_job(LLAMA, **arguments, recipe=recipe))
        assert asked.launch.targets
        assert not asked.chosen.strategy.offloads_optimizer


def test_offers_are_part_of_the_contract() -> None:
    for request in (WITHOUT_FILES["pins"], {"model": "gpt2", "cluster": {"gpus_per_node": 4}}):
        parsed = parse_request(request)
        resolved, plan = answers.suggest(parsed, allow_paths=False)
        said = answers.answer_suggestion(parsed, resolved, plan)["launch"]
        assert len(said["offers"]) == len(plan.offers) > 0
        for answer, offer in zip(said["offers"], plan.offers, strict=True):
            assert answer["changes"] == offer.changes
            assert answer["drops_pins"] == bool(offer.dropped)
            assert answer["reason"] == offer.reason
            assert answer["family"] == offer.candidate.strategy.family
            assert answer["step_seconds"] == float(offer.candidate.step_time.step_seconds)
        assert said["instead"] == (None if said["targets"] else said["offers"][0])
