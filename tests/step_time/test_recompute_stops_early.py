"""Recompute of a block that ends where backward reads no further: what is left off, and where nothing is."""

from typing import Any

import pytest
from conftest import JobMaker

from planner.domain.job import Job
from planner.domain.strategy import Layout, Recompute
from planner.parallel.activations import part_tokens
from planner.step_time import compute
from planner.step_time.micro_batch import FORWARD, Spent, part_seconds
from planner.step_time.recomputed_modules import left_off

LLAMA = "meta-llama/Llama-2-7b-hf"
FULL = Layout(micro_batch_size=4, recompute=Recompute.FULL)


def left(job: Job) -> float:
    return float(left_off(job, FULL, job.model.blocks[0]))


def test_recompute_is_forward_less_the_matmul_after_which_nothing_is_read(
    make_job: JobMaker,
) -> None:
    job = make_job(LLAMA, gpu="h100-sxm-80gb")
    (block,) = job.model.blocks
    *_, last = block.linears
    assert last.name == "down_proj"
    assert left(job) == compute.linear(job, FULL, last, part_tokens(job, FULL, block))
    spent = part_seconds(job, FULL, block)
    launches = float(spent.of(Spent.FORWARD_LAUNCHES))
    forward = sum(float(spent.of(Spent(kind))) for kind in FORWARD) - launches
    assert float(spent.of(Spent.RECOMPUTE)) == pytest.approx(forward - left(job))
    assert 0.2 < left(job) / float(spent.of(Spent.FORWARD_MATMULS)) < 0.3


@pytest.mark.parametrize(
    ("model", "recipe"),
    [
        ("gpt2", {}),  # dropout
        ("allenai/OLMo-2-1124-7B", {}),  # a norm
        ("mistralai/Mixtral-8x7B-v0.1", {}),  # the router's weights
        (LLAMA, {"framework": "megatron"}),
        (LLAMA, {"framework": "torchtitan"}),
        (LLAMA, {"framework": "accelerate", "framework_version": "fsdp1"}),
        (LLAMA, {"framework": "composer", "framework_version": "2023-05"}),
        (LLAMA, {"framework": "torchtitan", "precision": "fp8"}),
        (LLAMA, {"method": "qlora"}),
        (LLAMA, {"method": "lora", "lora": {"targets": "all-linear"}}),
    ],
)
def test_nothing_is_left_off_that_is_read_or_that_a_kernel_keeps(
    make_job: JobMaker, model: str, recipe: dict[str, Any]
) -> None:
    assert left(make_job(model, gpu="h100-sxm-80gb", recipe=recipe)) == 0


@pytest.mark.parametrize("recipe", [{"method": "lora", "lora": {"targets": ["q_proj", "v_proj"]}}])
def test_beside_other_adapters_the_last_matmul_is_left_off(
    make_job: JobMaker, recipe: dict[str, Any]
) -> None:
    assert left(make_job(LLAMA, gpu="h100-sxm-80gb", recipe=recipe)) > 0
