"""Weights that are stored quantised: what is written says how they are loaded, and the rest is refused."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from conftest import JobMaker

from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.request.model import load_model
from planner.targets import launch

GPT_OSS = "openai/gpt-oss-20b"
GPUS = 4
LLAMA = "meta-llama/Llama-3.1-8B"


def reasons(job: Job, **layout: Any) -> str:
    sizes = {"data_parallel_shard_size": GPUS, "zero_stage": 3} | layout
    return launch(job, Layout(**sizes)).reason


def stored(job: Job, said: Mapping[str, Any]) -> Job:
    config = {**job.model.config, "quantization_config": said}
    return replace(job, model=replace(job.model, config=config))


@pytest.mark.parametrize("framework", ["torch", "accelerate", "deepspeed"])
def test_bitsandbytes_does_not_quantise_what_is_quantised(
    make_job: JobMaker, framework: str
) -> None:
    recipe = {"method": "qlora", "framework": framework}
    assert "bitsandbytes does not quantise again" in reasons(make_job(GPT_OSS, recipe=recipe))
    kept = reasons(make_job(GPT_OSS, recipe=recipe | {"method": "lora"}), zero_stage=2)
    assert "stored" not in kept


@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
@pytest.mark.parametrize("name", ["gptq", "awq", "compressed-tensors"])
def test_what_transformers_does_not_bring_back_is_not_trained(
    make_job: JobMaker, method: str, name: str
) -> None:
    job = make_job(LLAMA, recipe={"method": method})
    assert "stored" not in reasons(job)
    reason = reasons(stored(job, {"quant_method": name, "bits": 4}))
    assert reason.startswith(f"its weights are stored in {name}, which is not trained")
    assert "take the model that it was made from" in reason


def test_bitsandbytes_own_4_bit_serves_adapters_alone(make_job: JobMaker) -> None:
    said = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    alone: dict[str, Any] = {"data_parallel_shard_size": 1, "zero_stage": 0}
    quantised = stored(make_job(LLAMA, gpus=1, recipe={"method": "qlora"}), said)
    assert "trainer" in launch(quantised, Layout(**alone)).targets
    full = stored(make_job(LLAMA, gpus=1), said)
    assert "stored in bitsandbytes" in reasons(full, **alone)


def test_fp8_is_brought_back_where_its_blocks_fill_the_matrices(make_job: JobMaker) -> None:
    said = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    assert not launch(
        stored(make_job(LLAMA), said), Layout(data_parallel_shard_size=GPUS, zero_stage=3)
    ).refused.keys() & {"torchrun", "trainer"}
    # 576 rows have five scales.
    assert "do not fill each matrix" in reasons(make_job("deepseek-ai/DeepSeek-V3"))


def test_a_framework_that_starts_at_random_reads_no_weights(make_job: JobMaker) -> None:
    recipe = {"framework": "megatron"}
    layout = Layout(data_parallel_replicate_size=GPUS, zero_stage=0)
    job = make_job("openai-community/gpt2", recipe=recipe)
    assert launch(stored(job, {"quant_method": "gptq"}), layout).targets == ("megatron",)
    job = make_job(LLAMA, recipe=recipe)
    assert "stored in gptq" in reasons(stored(job, {"quant_method": "gptq"}))


@pytest.mark.parametrize(
    ("model", "is_read"), [(GPT_OSS, True), ("deepseek-ai/DeepSeek-V3", True), (LLAMA, False)]
)
def test_megatron_bridge_reads_what_it_brings_to_16_bit(
    model: str, *, is_read: bool, make_job: JobMaker
) -> None:
    job = make_job(model, recipe={"framework": "megatron"})
    job = job if is_read else stored(job, {"quant_method": "fp8"})
    found = launch(job, Layout(data_parallel_replicate_size=GPUS, zero_stage=0))
    assert ("megatron" in found.targets) == is_read


def test_shards_of_deepspeed_are_not_loaded(make_job: JobMaker) -> None:
    job = make_job(GPT_OSS, recipe={"framework": "deepspeed"})
    assert "in DeepSpeed's shards" in reasons(job)
    assert "in DeepSpeed's shards" not in reasons(job, zero_stage=2)


def test_a_config_alone_starts_at_random(make_job: JobMaker) -> None:
    job = stored(make_job(LLAMA), {"quant_method": "gptq"})
    job = replace(job, model=replace(job.model, is_pretrained=False))
    assert "stored" not in reasons(job)


def test_the_reader_is_told() -> None:
    _, notes = load_model(GPT_OSS, allow_paths=False)
    assert any("stored in mxfp4, which is not trained" in note for note in notes)
    _, notes = load_model(LLAMA, allow_paths=False)
    assert not any("stored" in note for note in notes)
