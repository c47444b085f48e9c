"""FSDP1 with frozen weights, and what transformers 4 keeps of the logits: published runs on real GPUs."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from conftest import JobMaker

from planner.core.units import GIB
from planner.domain.job import Job
from planner.domain.strategy import Layout, Recompute
from planner.memory.ledger import estimate_memory

RUNS = tomllib.loads(Path("data/measurements/fms_finetuning.toml").read_text())
ROWS = [dict(zip(RUNS["columns"], row, strict=True)) for row in RUNS["rows"]]


def job_of(make_job: JobMaker, run: dict[str, Any], **recipe: Any) -> Job:
    wish = {
        "sequence_length": 4096,
        "global_batch_size": run["gpus"] * run["micro_batch_size"],
        "precision": "bf16-mixed" if run["method"] == "qlora" else "bf16",
        "optimizer": "adamw",
        "method": run["method"],
        "attention": "flash",
        "framework": "accelerate",
        "framework_version": RUNS["framework_version"],
    }
    if run["method"] != "full":
        lora = {"rank": 16, "targets": ["q_proj", "k_proj", "v_proj", "o_proj"], "dropout": 0.1}
        if run["method"] == "qlora":
            lora |= {"double_quantization": True}
            lora |= {"dtype": "16-bit"} if run["gpus"] > 1 else {}
        wish |= {"lora": lora}
    name = "mistralai/Mistral-7B-v0.1"
    return make_job(name, gpus=run["gpus"], gpu="a100-sxm-80gb", recipe=wish | recipe)


def layout_of(run: dict[str, Any]) -> Layout:
    return Layout(
        data_parallel_shard_size=run["gpus"],
        zero_stage=3 if run["gpus"] > 1 else 0,
        micro_batch_size=run["micro_batch_size"],
        recompute=Recompute.FULL,
    )


def test_peaks_of_fine_tuning_on_a100s_are_met(make_job: JobMaker) -> None:
    bare = [run for run in ROWS if run["preparation"] == "bare"]
    assert len(bare) == 14
    for run in bare:
        peak = float(estimate_memory(job_of(make_job, run), layout_of(run)).peak_bytes) / GIB
        assert peak == pytest.approx(run["peak_gib"], rel=0.01), run


def test_flat_frozen_blocks_hold_inputs_and_gradients_until_backward_ends(
    make_job: JobMaker,
) -> None:
    run = next(run for run in ROWS if run["method"] == "lora" and run["gpus"] == 2)
    terms = {
        term.name: float(term.amount)
        for term in estimate_memory(job_of(make_job, run), layout_of(run)).terms
    }
    # 31 other blocks, an input and a gradient each, of 2 sequences of 4,096 tokens, 4,096 wide, in bf16.
    assert terms["frozen_block_inputs"] == 2 * 31 * (2 * 4096) * 4096 * 2


def test_one_gpu_and_fully_shard_hold_no_other_block_s_input(make_job: JobMaker) -> None:
    run = next(run for run in ROWS if run["method"] == "lora")
    two = run | {"gpus": 2, "micro_batch_size": 2}
    alone = estimate_memory(job_of(make_job, run), layout_of(run))
    today = estimate_memory(job_of(make_job, two, framework_version="1.15"), layout_of(two))
    assert [float(t.amount) for t in alone.terms if t.name == "frozen_block_inputs"] == [0.0]
    assert "frozen_block_inputs" not in [term.name for term in today.terms]


def test_shifted_logits_of_transformers_4_are_a_copy(make_job: JobMaker) -> None:
    run = next(run for run in ROWS if run["method"] == "lora" and run["gpus"] == 1)
    ledger = estimate_memory(job_of(make_job, run), layout_of(run))
    terms = {term.name: float(term.amount) for term in ledger.terms}
    tokens = 4 * 4096
    # bf16 logits, fp32 ones, their shifted copy, log-softmax; and what the frozen head multiplied.
    assert terms["logits_and_loss"] == tokens * (14 * 32_000 + 2 * 4096)
