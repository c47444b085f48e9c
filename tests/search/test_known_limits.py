"""Which random layouts break each limit, and which the search tries, beside what they were."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import JobMaker
from known_ledgers import check

from planner.domain.job import Job
from planner.domain.recompute_modules import number_of
from planner.domain.strategy import (
    ALL_LAYERS,
    FIELDS,
    Layout,
    Offload,
    PipelineSchedule,
    Recompute,
    Table,
    num_rows,
    vary,
)
from planner.search.effort import effort_factor
from planner.search.limits import LIMITS
from planner.search.space import strategies

LLAMA, MIXTRAL = "meta-llama/Llama-2-7b-hf", "mistralai/Mixtral-8x7B-v0.1"
NODES = {"gpu": "h100-sxm-80gb", "nodes": 2, "inter_node": "infiniband-ndr"}
JOBS: dict[str, dict[str, Any]] = {
    "torch": {"gpus": 4, "cluster": {"nodes": 2}, "recipe": {"global_batch_size": 24}},
    "megatron": {
        "model": MIXTRAL,
        "gpus": 4,
        "cluster": NODES,
        "recipe": {"framework": "megatron"},
    },
    "deepspeed": {"model": LLAMA, "gpus": 8, "recipe": {"framework": "deepspeed"}},
    "torchtitan": {
        "model": LLAMA,
        "gpus": 4,
        "cluster": NODES,
        "recipe": {"framework": "torchtitan"},
    },
    "nanotron": {"model": LLAMA, "gpus": 8, "recipe": {"framework": "nanotron"}},
    "adapters": {"model": MIXTRAL, "gpus": 8, "recipe": {"method": "lora"}},
    "accelerate": {
        "model": LLAMA,
        "gpus": 6,
        "recipe": {"framework": "accelerate", "optimizer_in_backward": True},
    },
    "mamba": {"model": "google-t5/t5-small", "gpus": 4},
}
ROWS = 4000
DICE: dict[str, list[Any]] = {
    "data_parallel_replicate_size": [1, 1, 2, 3, 4, 8],
    "data_parallel_shard_size": [1, 1, 2, 4, 8],
    "tensor_parallel_size": [1, 1, 1, 2, 4, 8],
    "sequence_parallel": [False, True],
    "pipeline_parallel_size": [1, 1, 1, 2, 4, 8],
    "virtual_pipeline_size": [1, 1, 1, 2, 3, 4],
    "pipeline_schedule": list(PipelineSchedule),
    "context_parallel_size": [1, 1, 1, 2, 4],
    "expert_parallel_size": [1, 1, 1, 2, 3, 4, 8],
    "expert_tensor_parallel_size": [0, 0, 0, 1, 2],
    "zero_stage": [0, 1, 2, 3],
    "micro_batch_size": [1, 1, 2, 3],
    "gradient_accumulation_steps": [1, 2, 4, 6],
    "recompute": list(Recompute),
    "recompute_layers": [ALL_LAYERS, ALL_LAYERS, 1, 3, 40],
    "recompute_modules": [0, 0, 0, *(number_of([name]) for name in ("mlp", "moe", "layernorm"))],
    "activation_offload_layers": [0, 0, 2],
    "offload": [Offload.NONE, *Offload],
    "synchronize_every": [1, 1, 1, 8],
}


def thrown() -> Table:
    dice = np.random.default_rng(1)
    columns = {
        name: np.array(DICE[name])[dice.integers(len(DICE[name]), size=ROWS)] for name in FIELDS
    }
    return vary(Layout(), **columns)


def figures(job: Job) -> Iterator[tuple[str, list[float]]]:
    """Yield how many rows are broken, and a sum that tells which."""
    table, rows = thrown(), np.arange(ROWS)
    for limit in LIMITS:
        broken = np.broadcast_to(limit.judge(job, table).broken, ROWS)
        yield limit.code, [int(np.sum(broken)), int(np.sum(rows[broken]))]
    factor = np.broadcast_to(effort_factor(job, table), ROWS)
    yield "effort", [float(np.sum(factor)), float(np.sum(factor * rows))]
    tried = strategies(job)
    yield "tried", [num_rows(tried), *(float(np.sum(getattr(tried, name))) for name in FIELDS)]


def test_limits_and_the_space_are_what_they_were(
    make_job: JobMaker, request: pytest.FixtureRequest
) -> None:
    found = ((name, dict(figures(make_job(**parts)))) for name, parts in JOBS.items())
    update = bool(request.config.getoption("--update-golden"))
    check(Path(__file__).with_name("known_limits.json"), found, update=update)
