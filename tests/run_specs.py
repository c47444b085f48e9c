"""Specs of runs by their layout, for the tests that write files without a plan."""

import math
from dataclasses import replace
from typing import Any

from planner.generate import RunSpec


def with_layout(spec: RunSpec, **changes: Any) -> RunSpec:
    """Return the spec with fields replaced; what is not said of the data-parallel ranks follows.

    Replicas without ZeRO and shards with it, over the GPUs that split no model.
    """
    changed = replace(spec, **changes)
    split = (
        changed.tensor_parallel_size
        * changed.pipeline_parallel_size
        * changed.context_parallel_size
    )
    size = changed.world_size // split
    if "data_parallel_replicate_size" in changes or "data_parallel_shard_size" in changes:
        return changed
    is_sharded = changed.zero_stage > 0
    return replace(
        changed,
        data_parallel_replicate_size=1 if is_sharded else size,
        data_parallel_shard_size=size if is_sharded else 1,
    )


def divided(spec: RunSpec, **layout: Any) -> RunSpec:
    """Return the plan that splits its model of 4 layers, on the GPUs of one node that this takes.

    16 sequences a step in micro-batches of 2; the pipeline's stages have equal layers.
    """
    sizes = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")
    split = math.prod(layout.get(size, 1) for size in sizes)
    stages = layout.get("pipeline_parallel_size", 1)
    data = layout.pop("data_parallel_size", 1)
    return with_layout(
        spec,
        gpus_per_node=split * data,
        micro_batch_size=2,
        gradient_accumulation_steps=8 // data,
        global_batch_size=16,
        **{"layers_per_stage": (4 // stages,) * stages} | layout,
    )
