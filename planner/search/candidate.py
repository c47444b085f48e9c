"""A layout with its estimates."""

from dataclasses import dataclass

from planner.domain.job import Job
from planner.domain.strategy import Layout, Table, num_rows
from planner.memory.ledger import Memory, estimate_memory, stage_memories
from planner.step_time.ledger import StepTime, estimate_step_time

COMFORTABLE_FRACTION = 0.92
"""Share of the usable memory above which the allocator starts to retry and throughput falls.

TensorAuto/OpenTau#273: 7.0, 6.2, 4.9 samples/s as the reserved share passes 91, 98 and 97 %.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One layout, estimated."""

    strategy: Layout
    memory: Memory
    step_time: StepTime
    fits: bool
    """Whether the reserved memory is within what the card offers."""
    is_comfortable: bool
    """Whether it fits with room to spare."""


def estimate(job: Job, layout: Layout) -> Candidate:
    """Return the memory and step time of a layout."""
    return _candidate(job, layout, estimate_memory(job, layout), estimate_step_time(job, layout))


def estimate_rows(job: Job, table: Table) -> tuple[Candidate, ...]:
    """Return the memory and step time of every layout of a table."""
    memory, step_time = estimate_memory(job, table), estimate_step_time(job, table)
    return tuple(
        _candidate(job, table.at(row), memory.at(row), step_time.at(row))
        for row in range(num_rows(table))
    )


def _candidate(job: Job, layout: Layout, memory: Memory, step_time: StepTime) -> Candidate:
    return Candidate(
        strategy=layout,
        memory=memory,
        step_time=step_time,
        fits=bool(memory.reserved_bytes <= job.usable_bytes),
        is_comfortable=bool(memory.reserved_bytes <= COMFORTABLE_FRACTION * job.usable_bytes),
    )


def memory_of_stages(job: Job, candidate: Candidate) -> tuple[Memory, ...]:
    """Return the ledger of every pipeline stage of a layout, in order."""
    if candidate.strategy.pipeline_parallel_size == 1:
        return (candidate.memory,)
    return stage_memories(job, candidate.strategy)
