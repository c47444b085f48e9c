"""What axolotl and LLaMA-Factory refuse: where they would train something else than the plan."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_specs import job_of, layout_of, refusal, with_layout
from test_generate import SPEC

from planner.generate import RunSpec
from planner.generate.run_spec import Adapters
from planner.targets import refusals
from planner.targets.llama_factory import known
from planner.targets.optimizers import optimizers

LLAMA = json.loads(Path("data/models/meta-llama--Llama-3.1-8B.json").read_text())["config"]
LORA = Adapters(rank=16, alpha=32.0, dropout=0.0, modules=("q_proj", "v_proj"), base_bits=16)
BASE = replace(SPEC, model="meta-llama/Llama-3.1-8B", model_config=LLAMA, precision="bf16-mixed")
BOTH = ("axolotl", "llama-factory")
CONTEXT = {
    "config_dtype": "bfloat16",
    "zero_stage": 3,
    "context_parallel_size": 2,
    "attention": "flash",
    "micro_batch_size": 1,
}


def spec(**changes: Any) -> RunSpec:
    changed = with_layout(BASE, **changes)
    sequences = changed.micro_batch_size * changed.gradient_accumulation_steps
    return replace(changed, global_batch_size=sequences * changed.data_parallel_size)


@pytest.mark.parametrize("target", BOTH)
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"adapters": LORA}, ""),
        ({"adapters": LORA, "task": "sequence-classification"}, "go on with a text"),
        ({"adapters": LORA, "recompute": "selective"}, "whole blocks or nothing"),
        ({"adapters": LORA, "loss": "chunked"}, "hold all logits, or are Liger's"),
        ({"adapters": LORA, "synchronize_every": 4}, "averages gradients every step"),
        ({"adapters": LORA, "compile": True}, "compiles a model as a whole"),
        ({"adapters": replace(LORA, alpha=1.5)}, "a whole number"),
        ({"adapters": LORA, "precision": "bf16"}, "under autocast"),
        ({"adapters": LORA, "optimizer": "adafactor"}, "no adafactor of the same states"),
        ({"adapters": LORA, "optimizer": "adamw-for-loop"}, "no adamw-for-loop"),
        ({"precision": "fp32", "optimizer_in_backward": True}, "after backward"),
        ({"precision": "fp32", "zero_stage": 1}, "ZeRO-1 through DeepSpeed alone"),
        ({"precision": "fp32", "zero_stage": 3, "offload": "optimizer"}, "together with"),
        ({"framework": "deepspeed", "optimizer": "sgd"}, "steps adamw, not sgd"),
        ({"framework": "deepspeed", "zero_stage": 3}, ""),
        ({"framework": "deepspeed", "tensor_parallel_size": 2}, "AutoTP|divides the data"),
    ],
)
def test_both_say_why_they_refuse(target: str, changes: dict[str, Any], reason: str) -> None:
    found = refusal(spec(**changes), target)
    assert any(words in found for words in reason.split("|")) if reason else not found


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "loads the weights that it trains in bf16, without a copy in fp32"),
        ({"precision": "fp16-mixed"}, "a loss scale needs them in fp32"),
        ({"config_dtype": "bfloat16"}, "brings embeddings and norms to fp32"),
        ({"config_dtype": "bfloat16", "attention": "flash"}, ""),
        ({"config_dtype": "bfloat16", "zero_stage": 3}, ""),
        (CONTEXT, ""),
        (CONTEXT | {"attention": "sdpa"}, "FlashAttention 2's"),
        (CONTEXT | {"micro_batch_size": 2}, "one sequence at a time"),
        (CONTEXT | {"zero_stage": 0}, "share out the weights too"),
        (CONTEXT | {"sequence_length": 1023}, "do not divide 1023 tokens"),
    ],
)
def test_axolotl_loads_what_it_trains_in_16_bit(changes: dict[str, Any], reason: str) -> None:
    found = refusal(spec(**changes), "axolotl")
    assert reason in found if reason else not found


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"precision": "bf16", "zero_stage": 3}, ""),
        ({"precision": "fp32", "adapters": LORA}, "in the dtype of their config"),
        ({"adapters": LORA, "zero_stage": 3}, "makes fp32 of frozen weights"),
        ({"config_dtype": "bfloat16", "zero_stage": 3}, "makes fp32 of the 16-bit weights"),
        ({"config_dtype": "float16"}, "those in bf16"),
        (
            {
                "zero_stage": 3,
                "data_parallel_replicate_size": 2,
                "data_parallel_shard_size": 4,
            },
            "without replicas",
        ),
        ({"model_config": LLAMA | {"model_type": "arcee"}, "loss": "fused"}, "no fused loss"),
    ],
)
def test_llama_factory_brings_what_it_trains_to_fp32(changes: dict[str, Any], reason: str) -> None:
    found = refusal(spec(**changes), "llama-factory")
    assert reason in found if reason else not found


def test_random_weights_are_not_fine_tuned() -> None:
    plan = spec(adapters=LORA)
    job = job_of(plan)
    at_random = replace(job, model=replace(job.model, is_pretrained=False))
    found = refusals(at_random, layout_of(plan), BOTH)
    assert found.keys() == {*BOTH}
    assert all("start at random" in each.reason for each in found.values())


def test_the_records_name_what_the_planner_knows() -> None:
    assert {"llama", "qwen3"} <= {*known().fused_loss}
    assert optimizers()["adamw"].in_trainer == "adamw_torch"
    assert not optimizers()["muon"].in_trainer
