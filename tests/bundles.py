"""Bundles by their layout, for the tests that write files without a plan."""

from dataclasses import replace
from typing import Any

from planner.generate import Bundle


def with_layout(bundle: Bundle, **changes: Any) -> Bundle:
    """Return the bundle with fields replaced; what is not said of the data-parallel ranks follows.

    Replicas without ZeRO and shards with it, over the GPUs that split no model.
    """
    changed = replace(bundle, **changes)
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
