"""How a job is laid out over the GPUs, one layout or a table of all of them.

Sizes multiply: replicate x shard x tensor x pipeline x context = world size, and
micro batch x accumulation steps x replicate x shard = global batch.
"""

import math
from dataclasses import dataclass, fields
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from planner.errors import InvalidInputError
from planner.job import Job
from planner.term import Column, pick

Whole: TypeAlias = Any
"""A whole number, or a column of them."""

ZERO_1, ZERO_2, ZERO_3 = 1, 2, 3

FAMILIES = {0: "ddp", ZERO_1: "zero-1", ZERO_2: "zero-2", ZERO_3: "zero-3"}
"""By ZeRO stage."""

STAGES = {family: stage for stage, family in FAMILIES.items()}

RECOMPUTE = ("none", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One layout; or a table of layouts, when the fields hold columns of equal length."""

    data_parallel_replicate_size: Whole = 1
    data_parallel_shard_size: Whole = 1
    tensor_parallel_size: Whole = 1
    sequence_parallel: Any = False
    pipeline_parallel_size: Whole = 1
    virtual_pipeline_size: Whole = 1
    pipeline_schedule: Any = "1f1b"
    context_parallel_size: Whole = 1
    expert_parallel_size: Whole = 1
    zero_stage: Whole = 0
    micro_batch_size: Whole = 1
    gradient_accumulation_steps: Whole = 1
    recompute: Any = "none"
    offload: Any = "none"
    synchronize_every: Whole = 1

    @property
    def data_parallel_size(self) -> Whole:
        """Return the ranks that see different data."""
        return self.data_parallel_replicate_size * self.data_parallel_shard_size

    @property
    def shards_optimizer(self) -> Any:
        """Return whether each rank steps its own share of the parameters: ZeRO-1 and up."""
        return self.zero_stage >= ZERO_1

    @property
    def shards_parameters(self) -> Any:
        """Return whether parameters and gradients are sharded too: ZeRO-2 and 3, both FSDP."""
        return self.zero_stage >= ZERO_2

    @property
    def gathers_twice(self) -> Any:
        """Return whether backward gathers the parameters again: ZeRO-3."""
        return self.zero_stage == ZERO_3

    @property
    def offloads_optimizer(self) -> Any:
        """Return whether the optimizer's states, and its step, are in host memory."""
        return self.offload != "none"

    @property
    def offloads_parameters(self) -> Any:
        """Return whether a rank's parameters wait in host memory until they are gathered."""
        return self.offload == "optimizer+parameters"

    @property
    def family(self) -> str:
        """Return the name of a single layout's family: ddp, zero-1, zero-2 or zero-3."""
        return FAMILIES[self.zero_stage]

    def at(self, row: int) -> "Strategy":
        """Return one row of a table."""
        values = {field.name: pick(getattr(self, field.name), row) for field in fields(self)}
        return Strategy(**values)


def vary(s: Strategy, **columns: Column) -> Strategy:
    """Return a table of one layout with some fields varied, row by row."""
    length = len(next(iter(columns.values())))
    values = {field.name: np.full(length, getattr(s, field.name)) for field in fields(s)}
    return Strategy(**values | columns)


def strategies(job: Job, wish: dict[str, object] | None = None) -> Strategy:
    """Return the table of every legal layout: ZeRO stage x micro-batch x recompute.

    Args:
        job: supplies the world size and the global batch, which the layouts split exactly.
        wish: values of `Strategy` fields that every returned row must have.

    Raises:
        InvalidInputError: the global batch is not a multiple of the world size.
    """
    world_size = job.cluster.world_size
    per_rank, rest = divmod(job.recipe.global_batch_size, world_size)
    if rest:
        raise InvalidInputError(
            f"a global batch of {job.recipe.global_batch_size} does not split over"
            f" {world_size} GPUs",
            hint=nearest_multiples(job.recipe.global_batch_size, world_size),
            field="recipe.global_batch_size",
        )
    micro_batches = divisors(per_rank)
    stages = [stage for stage in job.framework.zero_stages if stage == 0 or world_size > 1]
    rows = list(product(stages, micro_batches, RECOMPUTE))
    stage, micro_batch, recompute = (np.array(column) for column in zip(*rows, strict=True))
    is_sharded = stage > 0
    table = Strategy(
        data_parallel_replicate_size=np.where(is_sharded, 1, world_size),
        data_parallel_shard_size=np.where(is_sharded, world_size, 1),
        zero_stage=stage,
        micro_batch_size=micro_batch,
        gradient_accumulation_steps=per_rank // micro_batch,
        recompute=recompute,
    )
    return _only(table, len(rows), wish or {})


def nearest_multiples(number: int, of: int) -> str:
    """Return a hint with the nearest multiples below and above."""
    below, above = number // of * of, -(-number // of) * of
    return f"it must be a multiple of {of}; nearest: {f'{below} or {above}' if below else above}"


def divisors(number: int) -> list[int]:
    """Return the divisors of a positive number, ascending."""
    small = [size for size in range(1, math.isqrt(number) + 1) if number % size == 0]
    return sorted({*small, *(number // size for size in small)})


def _only(table: Strategy, num_rows: int, wish: dict[str, object]) -> Strategy:
    keep = np.ones(num_rows, dtype=bool)
    for name, value in wish.items():
        keep &= np.broadcast_to(getattr(table, name) == value, num_rows)
    columns = {
        field.name: value[keep] if isinstance(value, np.ndarray) else value
        for field in fields(table)
        for value in (getattr(table, field.name),)
    }
    return Strategy(**columns)


def num_rows(table: Strategy) -> int:
    """Return how many layouts the table holds."""
    return len(table.zero_stage)
