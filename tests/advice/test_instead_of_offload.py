"""What is said to fit without offload, where a plan cannot do without it."""

import pytest
from conftest import JobMaker

from planner.advice.plan import make_plan
from planner.domain.strategy import Layout
from planner.search.largest_that_fits import adapters

LLAMA, XL = "meta-llama/Llama-2-7b-hf", "gpt2-xl"


def test_an_8_bit_optimizer_is_named_where_the_plan_with_it_has_files(make_job: JobMaker) -> None:
    """The layout that offloads is on shards, which its optimizers do not step; the plan with it is a replica."""
    arguments = {"gpus": 1, "gpu": "rtx-3090"}
    said = {each.code: each.message for each in make_plan(make_job(XL, **arguments)).findings}
    assert (
        "what fits without: 8-bit AdamW (--optimizer adamw-8bit), LoRA of rank 16" in said["MEM003"]
    )
    assert "(--optimizer adamw-8bit)" in said["ONE007"]
    smaller = make_plan(make_job(XL, **arguments, recipe={"optimizer": "adamw-8bit"}))
    assert smaller.launch.targets
    assert not smaller.chosen.strategy.offloads_optimizer


@pytest.mark.parametrize(
    ("framework", "has_adapters"),
    [("torch", True), ("deepspeed", True), ("megatron", True), ("nanotron", False)],
)
def test_adapters_are_named_of_every_framework_that_has_some(
    make_job: JobMaker, framework: str, *, has_adapters: bool
) -> None:
    arguments = {"gpus": 1, "gpu": "a100-80gb"}
    job = make_job(LLAMA, **arguments, recipe={"framework": framework})
    named = {name for name, _ in adapters(job, Layout())}
    assert ("LoRA" in named) == has_adapters
    if has_adapters:
        said = {each.code: each.message for each in make_plan(job).findings}
        assert "LoRA of rank 16 (--method lora)" in said["MEM003"]
        recipe = {"framework": framework, "method": "lora"}
        asked = make_plan(make_job(LLAMA, **arguments, recipe=recipe))
        assert asked.launch.targets
        assert not asked.chosen.strategy.offloads_optimizer
