"""A layout with its estimates."""

from dataclasses import replace

import numpy as np

from planner.core.frozen import frozen
from planner.core.term import Column, Truth, pick
from planner.domain.job import Job
from planner.domain.strategy import Layout, Offload, Recompute, Table, num_rows, vary
from planner.memory.host import fits_host
from planner.memory.ledger import (
    Memory,
    estimate_memory,
    stage_memories,
)
from planner.memory.room import COMFORTABLE_FRACTION
from planner.step_time.ledger import StepTime, estimate_step_time


@frozen
class Candidate:
    """One layout, estimated."""

    strategy: Layout
    memory: Memory
    step_time: StepTime
    fits: bool
    """Whether the card holds what is reserved, and the host, where its memory is known, what is offloaded."""
    is_comfortable: bool
    """Whether it fits with room to spare."""


@frozen
class Ledgers:
    """Both ledgers of a table of layouts; only what fits is timed."""

    first: int
    """Row of the search that is the table's first."""
    memory: Memory
    fitting: Column
    """Rows of the table that fit."""
    step_time: StepTime
    """Of those rows."""

    def candidate(self, job: Job, layout: Layout, row: int) -> Candidate:
        """Return the estimates of a row of the search that fits."""
        memory = self.memory.at(row - self.first)
        step_time = self.step_time.at(int(np.searchsorted(self.fitting, row - self.first)))
        return _candidate(job, layout, memory, step_time, is_held=True)


def estimate(job: Job, layout: Layout) -> Candidate:
    """Return the memory and step time of a layout."""
    memory, step_time = estimate_memory(job, layout), estimate_step_time(job, layout)
    return _candidate(job, layout, memory, step_time, is_held=fits_host(job, layout))


def estimate_rows(job: Job, table: Table) -> tuple[Candidate, ...]:
    """Return the memory and step time of every layout of a table."""
    memory, step_time = estimate_memory(job, table), estimate_step_time(job, table)
    is_held = fits_host(job, table)
    return tuple(
        _candidate(
            job, table.at(row), memory.at(row), step_time.at(row), is_held=pick(is_held, row)
        )
        for row in range(num_rows(table))
    )


def _candidate(
    job: Job, layout: Layout, memory: Memory, step_time: StepTime, *, is_held: Truth
) -> Candidate:
    share = memory.reserved_bytes / job.usable_bytes
    return Candidate(
        strategy=layout,
        memory=memory,
        step_time=step_time,
        fits=bool(is_held and share <= 1),
        is_comfortable=bool(is_held and share <= COMFORTABLE_FRACTION),
    )


def memory_of_stages(job: Job, candidate: Candidate) -> tuple[Memory, ...]:
    """Return the ledger of every pipeline stage of a layout, in order."""
    if candidate.strategy.pipeline_parallel_size == 1:
        return (candidate.memory,)
    return stage_memories(job, candidate.strategy)


def with_activations_away(job: Job, layout: Layout) -> Layout | None:
    """Return the layout with the fewest blocks' activations in host memory that lets it fit.

    None where such runs have all of them on the GPU, or no number of blocks is enough.
    """
    blocks = job.model.num_blocks
    if blocks <= 1 or not _is_usual(job, layout):
        return None
    numbers = np.arange(1, blocks)
    table = vary(layout, activation_offload_layers=numbers)
    fits = np.asarray(estimate_memory(job, table).reserved_bytes) <= job.usable_bytes
    if not np.any(fits):
        return None
    return replace(layout, activation_offload_layers=int(numbers[np.argmax(fits)]))


def _is_usual(job: Job, layout: Layout) -> bool:
    framework = job.framework
    return (
        framework.offloads_activations_over_nvlink
        and job.cluster.gpu.host_link_bytes_per_second > 0
        and layout.zero_stage >= framework.sharding.parameters_sharded_from
        and layout.pipeline_parallel_size == 1
        and layout.recompute == Recompute.NONE
        and layout.offload == Offload.NONE
    )
