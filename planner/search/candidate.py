"""A layout with its estimates, or a table of layouts with theirs."""

from dataclasses import dataclass

from planner.core.term import Amount, pick
from planner.domain.job import Job
from planner.domain.strategy import Strategy
from planner.memory.ledger import Memory, estimate_memory, stage_memories
from planner.step_time.ledger import StepTime, estimate_step_time

COMFORTABLE_FRACTION = 0.92
"""Share of the usable memory above which the allocator starts to retry and throughput falls.

TensorAuto/OpenTau#273: 7.0, 6.2, 4.9 samples/s as the reserved share passes 91, 98 and 97 %.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One layout, estimated; or a table of them."""

    strategy: Strategy
    memory: Memory
    step_time: StepTime
    fits: Amount
    """Whether the reserved memory is within what the card offers."""
    is_comfortable: Amount
    """Whether it fits with room to spare."""

    def at(self, row: int) -> "Candidate":
        """Return one row of a table."""
        return Candidate(
            strategy=self.strategy.at(row),
            memory=self.memory.at(row),
            step_time=self.step_time.at(row),
            fits=bool(pick(self.fits, row)),
            is_comfortable=bool(pick(self.is_comfortable, row)),
        )


def estimate(job: Job, strategy: Strategy) -> Candidate:
    """Return the memory and step time of a layout, or of every layout of a table."""
    memory = estimate_memory(job, strategy)
    return Candidate(
        strategy=strategy,
        memory=memory,
        step_time=estimate_step_time(job, strategy),
        fits=memory.reserved_bytes <= job.usable_bytes,
        is_comfortable=memory.reserved_bytes <= COMFORTABLE_FRACTION * job.usable_bytes,
    )


def memory_of_stages(job: Job, candidate: Candidate) -> tuple[Memory, ...]:
    """Return the ledger of every pipeline stage of a layout, in order."""
    if candidate.strategy.pipeline_parallel_size == 1:
        return (candidate.memory,)
    return stage_memories(job, candidate.strategy)
