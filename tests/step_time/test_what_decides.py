"""Rows that are alike in what decides a part's seconds are timed once: what is said not to decide must not."""

from typing import Any

import numpy as np
import pytest
from conftest import JobMaker

from planner.domain.recompute_modules import number_of
from planner.domain.strategy import FIELDS, Layout, Offload, PipelineSchedule, Recompute, vary
from planner.step_time.micro_batch import IDLE, part_seconds

MIXTRAL = "mistralai/Mixtral-8x7B-v0.1"
JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "torch": ("gpt2", {}),
    "experts": (MIXTRAL, {"framework": "megatron"}),
    "fp8": ("meta-llama/Llama-2-7b-hf", {"framework": "megatron", "precision": "fp8"}),
    "adapters": ("meta-llama/Llama-2-7b-hf", {"method": "lora"}),
}
OTHERS: dict[str, tuple[Any, Any]] = {
    "data_parallel_replicate_size": (1, 2),
    "data_parallel_shard_size": (1, 2),
    "expert_tensor_parallel_size": (2, 1),
    "pipeline_parallel_size": (1, 2),
    "virtual_pipeline_size": (1, 2),
    "pipeline_schedule": (PipelineSchedule.GPIPE, PipelineSchedule.ZERO_BUBBLE_H1),
    "gradient_accumulation_steps": (1, 4),
    "activation_offload_layers": (0, 4),
    "offload": (Offload.NONE, Offload.OPTIMIZER_AND_PARAMETERS),
    "synchronize_every": (1, 8),
}
LAYOUTS = (
    Layout(tensor_parallel_size=2, sequence_parallel=True, zero_stage=1),
    Layout(context_parallel_size=2, recompute=Recompute.FULL, zero_stage=3),
    Layout(recompute=Recompute.SELECTIVE, recompute_modules=number_of(["mlp"])),
)


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("field", OTHERS)
def test_what_is_said_not_to_decide_does_not(make_job: JobMaker, name: str, field: str) -> None:
    model, recipe = JOBS[name]
    job = make_job(model, gpu="h100", gpus=8, recipe={"global_batch_size": 64, **recipe})
    for layout in LAYOUTS:
        table = vary(layout, **{field: np.array(OTHERS[field])})
        if np.ptp(table.ranks_per_expert) and job.model.has_experts:
            continue
        for part in job.model.parts:
            found = part_seconds(job, table, part).seconds_by_kind
            assert found[..., 0].tolist() == found[..., -1].tolist()


def test_all_that_is_not_known_not_to_decide_decides() -> None:
    """Layers that recompute decide where not all do; that is said where the rows are grouped."""
    assert {*OTHERS, "recompute_layers"} == set(IDLE) < set(FIELDS)
