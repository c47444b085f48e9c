"""Layouts that have between them every term of a ledger, and the figures that a folder's ledgers had when last looked at.

A figure of them proves nothing, but none changes unseen: `pytest --update-golden tests/memory tests/step_time` rewrites
them where one was meant to; read the diff.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from planner.domain.job import Job
from planner.domain.recompute_modules import number_of
from planner.domain.strategy import Layout, Offload, PipelineSchedule, Recompute
from planner.request.schema import parse_request, resolve

LLAMA, LONG, MIXTRAL = (
    "meta-llama/Llama-2-7b-hf",
    "meta-llama/Llama-3.1-8B",
    "mistralai/Mixtral-8x7B-v0.1",
)
TWO_NODES = {"gpu": "h100-sxm-80gb", "nodes": 2, "inter_node": "infiniband-ndr"}
ZERO_3 = {"data_parallel_shard_size": 8, "zero_stage": 3}
FULL, SELECTIVE = {"recompute": Recompute.FULL}, {"recompute": Recompute.SELECTIVE}
PIPED = {"pipeline_parallel_size": 2, "gradient_accumulation_steps": 8}
DIVIDED = {"tensor_parallel_size": 2, "sequence_parallel": True}
SCHEDULES = PipelineSchedule
Figures = dict[str, list[float]]
PEAKS = {"fp32": 2e13, "tf32": 1.5e14, "fp8": 6e14}
"""Of cards of round figures, so that a record put right changes none of the ledgers'."""

JOBS: dict[str, tuple[dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "gpt2": (
        {"gpus": 4},
        (
            {"data_parallel_replicate_size": 4, "gradient_accumulation_steps": 2},
            {"data_parallel_replicate_size": 4, "synchronize_every": 4},
            {"data_parallel_shard_size": 4, "zero_stage": 1, "micro_batch_size": 8},
            {"data_parallel_shard_size": 4, "zero_stage": 2, **FULL, "recompute_layers": 5},
            {"tensor_parallel_size": 4, "micro_batch_size": 4},
        ),
    ),
    "gpt2 in fp32, eager": (
        {
            "gpus": 2,
            "gpu": "v100",
            "recipe": {"precision": "fp32", "attention": "eager", "optimizer": "adamw-for-loop"},
        },
        ({"data_parallel_replicate_size": 2}, {**PIPED, "micro_batch_size": 2}),
    ),
    "llama": (
        {"model": LLAMA, "gpus": 8, "recipe": {"sequence_length": 2048}},
        (
            {**ZERO_3, **FULL, "micro_batch_size": 2},
            {**ZERO_3, "gradient_accumulation_steps": 4, "activation_offload_layers": 4},
            {**ZERO_3, "offload": Offload.OPTIMIZER_AND_PARAMETERS},
            {"data_parallel_shard_size": 4, **DIVIDED, "zero_stage": 3, "micro_batch_size": 2},
            {"data_parallel_shard_size": 2, **DIVIDED, **PIPED, "zero_stage": 2},
        ),
    ),
    "pipelines": (
        {"model": LLAMA, "gpus": 2, "recipe": {"sequence_length": 1024}},
        (
            {**PIPED, "pipeline_schedule": SCHEDULES.GPIPE},
            {**PIPED, **FULL, "recompute_layers": 10},
            {**PIPED, "pipeline_schedule": SCHEDULES.INTERLEAVED, "virtual_pipeline_size": 2},
            {**PIPED, "pipeline_schedule": SCHEDULES.ZERO_BUBBLE_H1, **FULL},
            {**PIPED, "pipeline_schedule": SCHEDULES.ZERO_BUBBLE_V, "virtual_pipeline_size": 2},
        ),
    ),
    "two nodes": (
        {"model": LLAMA, "cluster": TWO_NODES, "gpus": 8, "recipe": {"compile": True}},
        (
            {
                "data_parallel_replicate_size": 2,
                "data_parallel_shard_size": 8,
                "zero_stage": 3,
                "gradient_accumulation_steps": 2,
            },
            {"data_parallel_shard_size": 16, "zero_stage": 3},
            {"data_parallel_replicate_size": 16},
        ),
    ),
    "context": (
        {"model": LONG, "gpus": 8, "recipe": {"sequence_length": 32_768, "loss": "chunked"}},
        (
            {"context_parallel_size": 4, "data_parallel_shard_size": 2, "zero_stage": 3, **FULL},
            {"context_parallel_size": 8, **SELECTIVE},
        ),
    ),
    "megatron": (
        {
            "model": LLAMA,
            "cluster": TWO_NODES,
            "gpus": 8,
            "recipe": {"framework": "megatron", "attention": "eager"},
        },
        (
            {
                "data_parallel_shard_size": 2,
                **DIVIDED,
                **PIPED,
                "zero_stage": 1,
                "virtual_pipeline_size": 4,
                "pipeline_schedule": SCHEDULES.INTERLEAVED,
                "context_parallel_size": 2,
            },
            {
                "data_parallel_replicate_size": 4,
                "tensor_parallel_size": 4,
                **SELECTIVE,
                "micro_batch_size": 3,
            },
            {
                "data_parallel_shard_size": 16,
                "zero_stage": 1,
                "offload": Offload.OPTIMIZER,
                "micro_batch_size": 2,
            },
        ),
    ),
    "fp8 in megatron": (
        {
            "model": LONG,
            "gpu": "h100",
            "gpus": 8,
            "recipe": {
                "framework": "megatron",
                "precision": "fp8",
                "tensor_parallel_overlap": True,
                "loss": "fused",
            },
        },
        (
            {"data_parallel_shard_size": 4, **DIVIDED, "zero_stage": 1, **FULL},
            {"data_parallel_shard_size": 2, **PIPED, "tensor_parallel_size": 2, "zero_stage": 1},
        ),
    ),
    "experts in megatron": (
        {
            "model": MIXTRAL,
            "cluster": TWO_NODES,
            "gpus": 8,
            "recipe": {"framework": "megatron", "expert_dispatch": "once-per-node"},
        },
        (
            {"data_parallel_shard_size": 8, **DIVIDED, "expert_parallel_size": 8, "zero_stage": 1},
            {
                "data_parallel_shard_size": 4,
                "tensor_parallel_size": 2,
                "expert_parallel_size": 4,
                "expert_tensor_parallel_size": 2,
                **PIPED,
                "zero_stage": 1,
            },
            {
                "data_parallel_shard_size": 16,
                "expert_parallel_size": 8,
                "zero_stage": 1,
                **SELECTIVE,
                "recompute_modules": number_of(["moe"]),
            },
        ),
    ),
    "experts with biases": (
        {"model": "openai/gpt-oss-20b", "gpu": "h100", "gpus": 8},
        ({**ZERO_3, "expert_parallel_size": 4}, {**ZERO_3, **FULL}),
    ),
    "torchtitan": (
        {
            "model": LONG,
            "cluster": TWO_NODES,
            "gpus": 8,
            "recipe": {"framework": "torchtitan", "precision": "fp8", "fp8_recipe": "rowwise"},
        },
        (
            {
                "data_parallel_shard_size": 8,
                **DIVIDED,
                "zero_stage": 3,
                **SELECTIVE,
                "micro_batch_size": 2,
            },
            {
                "data_parallel_replicate_size": 2,
                "data_parallel_shard_size": 4,
                "context_parallel_size": 2,
                "zero_stage": 2,
            },
        ),
    ),
    "nanotron": (
        {
            "model": "meta-llama/Llama-3.2-1B",
            "cluster": TWO_NODES | {"nodes": 4},
            "gpus": 8,
            "recipe": {"framework": "nanotron"},
        },
        (
            {"tensor_parallel_size": 16, "sequence_parallel": True, **PIPED},
            {"tensor_parallel_size": 32, "sequence_parallel": True},
            {"data_parallel_shard_size": 32, "zero_stage": 1},
        ),
    ),
    "deepspeed": (
        {"model": LONG, "gpus": 8, "recipe": {"framework": "deepspeed"}},
        (
            {**ZERO_3, "gradient_accumulation_steps": 2},
            {
                **ZERO_3,
                "offload": Offload.OPTIMIZER_AND_PARAMETERS,
                "gradient_accumulation_steps": 2,
            },
            {"data_parallel_shard_size": 8, "zero_stage": 2, "offload": Offload.OPTIMIZER},
            {"data_parallel_shard_size": 8, "zero_stage": 1},
            {"data_parallel_replicate_size": 4, **PIPED},
        ),
    ),
    "fused loss": (
        {
            "model": LONG,
            "gpus": 8,
            "recipe": {"framework": "deepspeed", "loss": "fused", "optimizer": "adamw-8bit"},
        },
        ({**ZERO_3, **FULL},),
    ),
    "pairs": (
        {"model": LLAMA, "gpus": 8, "recipe": {"job": "dpo"}},
        (ZERO_3, {"data_parallel_replicate_size": 8, **FULL}),
    ),
    "adapters": (
        {"model": LLAMA, "gpus": 4, "recipe": {"method": "lora"}},
        (
            {"data_parallel_replicate_size": 4},
            {"data_parallel_shard_size": 4, "zero_stage": 3, **FULL},
        ),
    ),
    "adapters beside flat parameters": (
        {
            "model": LLAMA,
            "gpus": 4,
            "recipe": {"method": "lora", "framework": "accelerate", "framework_version": "1.0.1"},
        },
        ({"data_parallel_shard_size": 4, "zero_stage": 3, **FULL},),
    ),
    "adapters of quantised weights": (
        {"model": LLAMA, "gpus": 4, "recipe": {"method": "qlora", "precision": "bf16"}},
        (
            {"data_parallel_replicate_size": 4, **FULL},
            {"data_parallel_shard_size": 4, "zero_stage": 3},
        ),
    ),
    "adapters in megatron": (
        {"model": LLAMA, "gpus": 4, "recipe": {"method": "lora", "framework": "megatron"}},
        (
            {
                "tensor_parallel_size": 2,
                "sequence_parallel": True,
                "data_parallel_replicate_size": 2,
            },
        ),
    ),
    "encoder": (
        {
            "model": "google-bert/bert-base-uncased",
            "gpus": 2,
            "recipe": {"sequence_length": 512, "precision": "fp16-mixed"},
        },
        ({"data_parallel_replicate_size": 2, "micro_batch_size": 16},),
    ),
    "images": (
        {"model": "microsoft/resnet-50", "gpus": 2},
        ({"data_parallel_replicate_size": 2, "micro_batch_size": 16},),
    ),
    "muon": (
        {"gpus": 4, "recipe": {"optimizer": "muon"}},
        ({"data_parallel_shard_size": 4, "zero_stage": 1},),
    ),
    "adafactor": ({"gpus": 1, "recipe": {"optimizer": "adafactor", "precision": "bf16"}}, ({},)),
    "optimizer in backward": (
        {"gpus": 4, "recipe": {"optimizer": "adamw", "optimizer_in_backward": True}},
        ({"data_parallel_shard_size": 4, "zero_stage": 3}, {"data_parallel_replicate_size": 4}),
    ),
}


@cache
def _job(name: str) -> Job:
    asked = dict(JOBS[name][0])
    cluster = {"gpu": asked.pop("gpu", "a100"), "gpus_per_node": asked.pop("gpus")}
    cluster |= asked.pop("cluster", {})
    payload = {"model": "gpt2", **asked, "cluster": cluster}
    job = resolve(parse_request(payload), allow_paths=False).job
    gpu = job.cluster.gpu
    round_figures = replace(
        gpu,
        memory_bytes=80 * 10**9,
        usable_bytes=79e9,
        hbm_bytes_per_second=2e12,
        peak_flops={dtype: PEAKS.get(dtype, 3e14) for dtype in gpu.peak_flops},
        tdp_watts=0,
        full_watts=0,
    )
    return replace(job, cluster=replace(job.cluster, gpu=round_figures))


def layouts() -> Iterator[tuple[str, Job, Layout]]:
    """Yield each layout with its job, and what both are called."""
    for name, (_, fields) in JOBS.items():
        for number, each in enumerate(fields):
            yield f"{name} {number}", _job(name), Layout(**each)


def check(path: Path, found: Iterable[tuple[str, Figures]], *, update: bool) -> None:
    """Compare figures with those of a file, or write them there, in seven digits."""
    if update:
        found = list(found)
        rounded = (
            (name, {key: [float(f"{one:.7g}") for one in row] for key, row in each.items()})
            for name, each in found
        )
        lines = (f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in rounded)
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    known = json.loads(path.read_text())
    for name, each in found:
        was = known.pop(name)
        assert set(each) == set(was), name
        for key, row in each.items():
            assert row == pytest.approx(was[key], rel=1e-6), f"{name}: {key}"
    assert not known
