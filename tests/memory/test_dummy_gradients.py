"""Transformer Engine's stand-ins for weight gradients, by hand and beside what Megatron-LM's own tests read."""

from dataclasses import replace
from typing import Any

import pytest
from conftest import JobMaker

from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.memory.ledger import estimate_memory, stage_memories

LLAMA = "meta-llama/Llama-3.1-8B"
ZERO_1 = Layout(data_parallel_shard_size=8, zero_stage=1)
# Queries and outputs, keys and values, the three of the MLP; the head.
BLOCK = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14_336
HEAD = 4096 * 128_256
KEPT = ("parameters", "gradients", "optimizer_states")


def amounts(job: Job, s: Layout) -> dict[str, float]:
    return {term.name: float(term.amount) for term in estimate_memory(job, s).terms}


def dummies(job: Job, s: Layout) -> float:
    return amounts(job, s).get("dummy_weight_gradients", 0.0)


def of_megatron(make_job: JobMaker, model: Any = LLAMA, gpu: str = "h100", **recipe: Any) -> Job:
    return make_job(model, gpus=8, gpu=gpu, recipe={"framework": "megatron"} | recipe)


def test_one_layer_and_the_head_have_a_tensor_of_each_shape(make_job: JobMaker) -> None:
    job = of_megatron(make_job)
    assert dummies(job, ZERO_1) == 2 * (BLOCK + HEAD)
    halved = replace(ZERO_1, data_parallel_shard_size=4, tensor_parallel_size=2)
    assert dummies(job, halved) == 2 * (BLOCK + HEAD) / 2


def test_only_the_last_stage_has_the_heads(make_job: JobMaker) -> None:
    s = replace(ZERO_1, data_parallel_shard_size=2, pipeline_parallel_size=4)
    held = [
        sum(float(term.amount) for term in memory.terms if term.name == "dummy_weight_gradients")
        for memory in stage_memories(of_megatron(make_job), s)
    ]
    assert held == [2 * BLOCK, 2 * BLOCK, 2 * BLOCK, 2 * (BLOCK + HEAD)]


def test_experts_of_a_layer_share_one(make_job: JobMaker) -> None:
    job = of_megatron(make_job, "mistralai/Mixtral-8x7B-v0.1")
    expert, router, head = 3 * 4096 * 14_336, 4096 * 8, 4096 * 32_000
    attention = 2 * 4096 * 4096 + 2 * 4096 * 1024
    s = replace(ZERO_1, expert_parallel_size=4)
    assert dummies(job, s) == 2 * (attention + expert + router + head)


@pytest.mark.parametrize(
    ("gpu", "recipe"),
    [
        ("h100", {"framework_version": "nemo"}),
        ("h100", {"framework": "nanotron"}),
        ("h100", {"framework": "torch"}),
        ("v100", {"precision": "fp16-mixed"}),
    ],
)
def test_others_have_none(make_job: JobMaker, gpu: str, recipe: dict[str, str]) -> None:
    """NeMo of 2024 came before them, nanotron and PyTorch add gradients up themselves, a V100 has no such kernels."""
    assert dummies(of_megatron(make_job, gpu=gpu, **recipe), ZERO_1) == 0


def test_what_megatrons_own_run_of_15b_keeps_after_a_step(make_job: JobMaker) -> None:
    """13.27 GB on H100, 13.22 on GB200; 6 % less without these tensors.

    NVIDIA/Megatron-LM tests/functional_tests/test_cases/gpt/gpt3_15b_8t_release_sm at d98e8a6, mem-allocated-bytes: 8
    tensor-parallel ranks, gradients in fp32. Its 32 replicas follow from the peak, which grows by the moments, 8 B of
    1.95 B parameters a rank over the replicas, from the first step (27.659 GB) to the fifth (28.157).
    """
    config = {
        "model_type": "nemotron",
        "hidden_size": 6144,
        "num_hidden_layers": 32,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "intermediate_size": 24_576,
        "vocab_size": 256_000,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "hidden_act": "relu2",
    }
    job = of_megatron(make_job, config, sequence_length=4096)
    s = replace(ZERO_1, data_parallel_shard_size=32, tensor_parallel_size=8, sequence_parallel=True)
    held = amounts(job, s)
    without = sum(held[name] for name in KEPT)
    assert without + held["dummy_weight_gradients"] == pytest.approx(13_268_858_880, rel=0.04)
    assert without == pytest.approx(0.94 * 13_268_858_880, rel=0.01)
