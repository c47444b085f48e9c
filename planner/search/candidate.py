"""A layout with its estimates."""

import numpy as np

from planner.core.frozen import frozen
from planner.core.term import Column, Truth, pick
from planner.domain.job import Job
from planner.domain.strategy import Layout, Table, num_rows
from planner.memory.host import fits_host
from planner.memory.ledger import Memory, estimate_memory, stage_memories
from planner.step_time.ledger import StepTime, estimate_step_time

COMFORTABLE_FRACTION = 0.92
"""Share of the usable memory above which the allocator starts to retry and throughput falls.

TensorAuto/OpenTau#273: 7.0, 6.2, 4.9 samples/s as the reserved share passes 91, 98 and 97 %.
"""


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
