"""What a layout must have, and the simplest layout that has it."""

from collections.abc import Mapping
from typing import Any

from planner.core.term import Truth
from planner.domain.dimensions import DIMENSIONS
from planner.domain.framework import Framework
from planner.domain.job import Job
from planner.domain.model import Model
from planner.domain.strategy import Layout, Whole

PinnedFields = Mapping[str, int]
"""Values of fields of `Strategy` that every considered layout has; choices by their members.

`data_parallel_size`, the product of replicas and shards, is held as if it were a field.
"""


class AtLeast(int):
    """A pinned value that may be larger: AtLeast(2) of a size is any size that divides."""

    def __str__(self) -> str:
        return f"{int(self)} or more"


def holds(values: Whole, pinned: int) -> Truth:
    """Return whether a value is the pinned one, or which rows of a column."""
    return values >= pinned if isinstance(pinned, AtLeast) else values == pinned


def simplest_layout(job: Job, pinned: PinnedFields) -> Layout:
    """Return the simplest layout with the pinned values, whether it can run or not.

    Where a mixture divided by tensors runs with sequence parallelism alone, it has it unless that is pinned.
    """
    fields: dict[str, Any] = {
        "sequence_parallel": needs_divided_tokens(job.framework, job.model, pinned)
    }
    fields |= pinned
    wanted_ranks = fields.pop("data_parallel_size", None)
    s = Layout(**fields)
    ranks = max(1, job.cluster.world_size // s.model_parallel_size)
    if wanted_ranks is not None:
        ranks = max(ranks, wanted_ranks) if isinstance(wanted_ranks, AtLeast) else wanted_ranks
    replicate, shard = _data_parallel(fields, ranks)
    micro_batch, steps = _batch(fields, job.recipe.global_batch_size, replicate * shard)
    return Layout(
        **fields
        | {
            "data_parallel_replicate_size": replicate,
            "data_parallel_shard_size": shard,
            "micro_batch_size": micro_batch,
            "gradient_accumulation_steps": steps,
        }
    )


def filled(job: Job, pinned: PinnedFields) -> PinnedFields:
    """Return the pinned values with the one size that was left open as large as all GPUs ask for."""
    sizes = {dimension.field for dimension in DIMENSIONS if not dimension.is_of_data}
    opened = [name for name in sizes & pinned.keys() if isinstance(pinned[name], AtLeast)]
    if len(opened) != 1:
        return pinned
    (name,) = opened
    others = simplest_layout(job, {**pinned, name: 1})
    ranks = others.model_parallel_size * others.data_parallel_size
    return {**pinned, name: max(pinned[name], job.cluster.world_size // ranks)}


def needs_divided_tokens(framework: Framework, model: Model, given: Mapping[str, Any]) -> bool:
    """Return whether the framework runs a layout with such fields of the model with sequence parallelism alone."""
    is_divided = (given.get("tensor_parallel_size") or 1) > 1
    return (
        is_divided and model.has_experts and framework.capabilities.experts_need_sequence_parallel
    )


def _data_parallel(fields: dict[str, Any], ranks: int) -> tuple[int, int]:
    """Return replicas and shards, each derived from the other; ZeRO shards over all ranks."""
    replicate = fields.get("data_parallel_replicate_size")
    shard = fields.get("data_parallel_shard_size")
    if isinstance(replicate, AtLeast) and shard:
        replicate = max(int(replicate), ranks // shard)
    if replicate is None:
        is_sharded = fields.get("zero_stage") and not shard
        replicate = 1 if is_sharded else max(1, ranks // (shard or 1))
    if shard is None or isinstance(shard, AtLeast):
        return replicate, max(shard or 1, ranks // replicate)
    return replicate, shard


def _batch(fields: dict[str, Any], batch: int, ranks: int) -> tuple[int, int]:
    micro_batch, steps = fields.get("micro_batch_size"), fields.get("gradient_accumulation_steps")
    if micro_batch is None:
        micro_batch = max(1, batch // (ranks * steps)) if steps else 1
    return micro_batch, steps or max(1, batch // (ranks * micro_batch))
