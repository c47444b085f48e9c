"""How a job is laid out over the GPUs: one layout, or a table of them.

Sizes multiply: replicate x shard x tensor x pipeline x context = world size, and
micro batch x accumulation steps x replicate x shard = global batch.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np

from planner.core.term import Column, pick

Whole: TypeAlias = Any
"""A whole number, or a column of them."""

ZERO_1, ZERO_2, ZERO_3 = 1, 2, 3

DATA_NAMES = {0: "ddp", ZERO_1: "zero-1", ZERO_2: "zero-2", ZERO_3: "zero-3"}
"""What data parallelism is called, by ZeRO stage."""

STAGES = {name: stage for stage, name in DATA_NAMES.items()}

RECOMPUTE = ("none", "selective", "full")
"""What backward computes again, the least first."""

TECHNIQUES = ("tensor", "pipeline", "context", "expert")
"""Ways to divide the model itself; each has a size, `<technique>_parallel_size`."""

SHORT_NAMES = {"tensor": "tp", "pipeline": "pp", "context": "cp", "expert": "ep"}


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
    def is_hybrid(self) -> Any:
        """Return whether shards of parameters are replicated: HSDP."""
        return self.shards_parameters & (self.data_parallel_replicate_size > 1)

    @property
    def is_local(self) -> Any:
        """Return whether replicas drift apart between averages: local SGD."""
        return self.synchronize_every > 1

    def uses(self, technique: str) -> Any:
        """Return whether the layout divides the model by a technique of `TECHNIQUES`."""
        return getattr(self, f"{technique}_parallel_size") > 1

    @property
    def family(self) -> str:
        """Return the name of a single layout's family, such as ddp, hsdp or tp+pp+zero-1."""
        names = [SHORT_NAMES[each] for each in TECHNIQUES if self.uses(each)]
        data = "hsdp" if self.is_hybrid else DATA_NAMES[self.zero_stage]
        data = "local-sgd" if self.is_local else data
        if not names or self.data_parallel_size > 1 or self.zero_stage:
            names.append(data)
        if self.offload != "none":
            names.append("offload")
        return "+".join(names)

    def at(self, row: int) -> "Strategy":
        """Return one row of a table."""
        values = {field.name: pick(getattr(self, field.name), row) for field in fields(self)}
        return Strategy(**values)


def vary(s: Strategy, **columns: Column) -> Strategy:
    """Return a table of one layout with some fields varied, row by row."""
    length = len(next(iter(columns.values())))
    values = {field.name: np.full(length, getattr(s, field.name)) for field in fields(s)}
    return Strategy(**values | columns)


def nearest_multiples(number: int, of: int) -> str:
    """Return a hint with the nearest multiples below and above."""
    below, above = number // of * of, -(-number // of) * of
    return f"it must be a multiple of {of}; nearest: {f'{below} or {above}' if below else above}"


def divisors(number: int) -> list[int]:
    """Return the divisors of a positive number, ascending."""
    small = [size for size in range(1, math.isqrt(number) + 1) if number % size == 0]
    return sorted({*small, *(number // size for size in small)})


def num_rows(table: Strategy) -> int:
    """Return how many layouts the table holds."""
    return len(table.zero_stage)


def rows(table: Strategy, which: Column) -> Strategy:
    """Return the rows of a table at these indices, or where a mask holds."""
    return Strategy(**{field.name: getattr(table, field.name)[which] for field in fields(table)})


def join(tables: Iterable[Strategy]) -> Strategy:
    """Return one table with the rows of several."""
    parts = list(tables)
    return Strategy(
        **{
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(Strategy)
        }
    )


def family_keys(table: Strategy) -> Column:
    """Return a number per row that is the same for layouts of the same `Strategy.family`."""
    flags = [table.uses(each) for each in TECHNIQUES]
    is_replicated = (table.data_parallel_size > 1) & np.logical_or.reduce(flags)
    flags += [is_replicated & (table.zero_stage == 0), table.is_hybrid, table.is_local]
    flags += [table.offloads_optimizer]
    key = np.where(table.is_hybrid, ZERO_3, table.zero_stage)
    for flag in flags:
        key = 2 * key + np.where(flag, 1, 0)
    return key
