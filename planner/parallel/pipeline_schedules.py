"""What each pipeline schedule is: its order, what it holds, what it leaves idle.

Notation: p stages, i the stage's index; m micro-batches; v chunks of layers on each stage.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from planner.core.frozen import frozen
from planner.core.remembered import remembered
from planner.core.term import Amount, Column, Truth
from planner.domain.strategy import PipelineSchedule, Strategy, Whole
from planner.parallel import schedule_orders
from planner.parallel.schedule_orders import Operation, Shape

MOST_CHUNKS = 64


@frozen
class MicroBatchSeconds:
    """How long a micro-batch takes through all stages."""

    total: Amount
    """Forward, backward and what is exchanged within the stages."""
    forward: Amount
    weight: Amount
    """The part of backward that can be put off: the weight gradients."""


def _none(_s: Strategy, index: Amount) -> Amount:
    return 0.0 * index


@frozen
class Schedule:
    """A pipeline schedule; what frameworks call it is in their records' capabilities."""

    order: Callable[[Shape, int], list[Operation]]
    """What a stage does; takes its index."""
    in_flight: Callable[[Strategy, Amount], Amount]
    """Micro-batches whose activations a stage holds at once, where there are several stages."""
    idle_share: Callable[[Strategy, MicroBatchSeconds], Amount]
    """What the schedule leaves idle of a micro-batch through the other stages."""
    waiting: Callable[[Strategy, Amount], Amount] = _none
    """Micro-batches that wait for their weight gradients when a stage has just finished a backward."""
    splits_backward: bool = False
    """Whether the weight gradients are operations of their own, which it puts off."""
    is_v_shaped: bool = False
    """Whether the second chunk runs from the last stage back to the first."""
    is_grouped: bool = False
    """Whether micro-batches pass each chunk in groups of p, which divides m; v divides the layers."""
    chunks: range = range(1, 2)
    """The sizes of v that it is defined for."""
    is_dominated: bool = False
    """Whether another takes as long in less memory: it is only looked at where it is wished for."""

    def position(self, shape: Shape, stage: int, chunk: int) -> int:
        """Return the place of a stage's chunk in the model: 0 holds the first layers."""
        if self.is_v_shaped and chunk % 2:
            return (chunk + 1) * shape.stages - 1 - stage
        return chunk * shape.stages + stage


def _one(_s: Strategy, index: Amount) -> Amount:
    return 1.0 + 0 * index


def _all(s: Strategy, _index: Amount) -> Amount:
    return s.gradient_accumulation_steps


def _run_ahead(s: Strategy, index: Amount) -> Amount:
    """1F1B: as many as a stage runs ahead of its first backward.

        min(m, p - i);  with chunks min(m, (2 * (p - i - 1) + (v - 1) * p + 1) / v), in whole stages' worth

    Source: Narayanan et al., arXiv:2104.04473, section 2.2 and figure 4; for interleaving at i = 0
    this is p * (1 + (p - 1) / (p * v)) micro-batches, Korthikanti et al., arXiv:2205.05198, eq. 5.
    """
    size, virtual = s.pipeline_parallel_size, s.virtual_pipeline_size
    chunked = (2 * (size - index - 1) + (virtual - 1) * size + 1) / virtual
    ahead = np.where(np.asarray(virtual) > 1, chunked, size - index)
    return np.minimum(s.gradient_accumulation_steps, ahead)


def _every_stage(s: Strategy, _index: Amount) -> Amount:
    """Zero bubble: min(m, p), as activations wait for the weight gradients.

    Source: Qi et al., zero bubble, arXiv:2401.10241 and arXiv:2405.15362: every stage holds as many
    as 1f1b's first.
    """
    return np.minimum(s.gradient_accumulation_steps, s.pipeline_parallel_size)


def _put_off(s: Strategy, index: Amount) -> Amount:
    """ZB-H1: min(m, i + 1), as every W is put off by i backwards; 0 on the first stage, which does both at once.

    Source: `planner.parallel.schedule_orders.zero_bubble_h1`; torch.distributed.pipelining's stage.py, PyTorch
    2.13, whose first stage has no inputs to differentiate.
    """
    held = np.minimum(s.gradient_accumulation_steps, index + 1)
    return np.where(np.asarray(index) > 0, held, 0.0)


def _held_in_a_v(s: Strategy, index: Amount) -> Amount:
    """ZB-V: min(m, p) in the steady state, min(m, (p + i) / 2) as it cools down, see `_put_off_in_a_v`."""
    size = s.pipeline_parallel_size
    held = np.where(_cools_down_fuller(s, index), (size + index) / 2, size)
    return np.minimum(s.gradient_accumulation_steps, held)


def _put_off_in_a_v(s: Strategy, index: Amount) -> Amount:
    """ZB-V: a chunk of one micro-batch, 1 / 2, or i as it cools down: i times two chunks' backwards come first.

    Source: `planner.parallel.schedule_orders.zero_bubble_v`.
    """
    held = np.where(_cools_down_fuller(s, index), index, 0.5)
    return np.minimum(s.gradient_accumulation_steps, held)


def _cools_down_fuller(s: Strategy, index: Amount) -> Truth:
    """Return whether (p + i) / 2 micro-batches and i of gradients are more than p and 1 / 2.

    Gradients of what a block's matmuls and norms put out are about half of what it keeps: 24 of 48 bytes in Llama's.
    """
    found: Truth = 2 * np.asarray(index) > s.pipeline_parallel_size + 0.5
    return found


def _a_chunk(s: Strategy, _whole: MicroBatchSeconds) -> Amount:
    """A chunk of the other stages: 1 / v.

    Source: Narayanan et al., arXiv:2104.04473, section 2.2.
    """
    return 1 / np.asarray(s.virtual_pipeline_size)


def _every_micro_batch(s: Strategy, _whole: MicroBatchSeconds) -> Amount:
    return s.gradient_accumulation_steps


def _but_weights(_s: Strategy, whole: MicroBatchSeconds) -> Amount:
    """Zero bubble H1: (whole - 2 W) / whole.

    Source: Qi et al., arXiv:2401.10241, table 1.
    """
    total = np.maximum(whole.total, 1e-12)
    return np.maximum(0.0, total - 2 * whole.weight) / total


def _longest_half(_s: Strategy, whole: MicroBatchSeconds) -> Amount:
    """ZB-V: max(F / 2, B / 2, B - W) / whole, where B has no weight gradients.

    Source: what `planner.parallel.schedule` simulates; Qi et al., arXiv:2405.15362, has the order.
    """
    total = np.maximum(whole.total, 1e-12)
    inputs = total - whole.forward - whole.weight
    return np.maximum(np.maximum(whole.forward, inputs) / 2, inputs - whole.weight) / total


SCHEDULES: Mapping[PipelineSchedule, Schedule] = MappingProxyType(
    {
        PipelineSchedule.NAIVE: Schedule(
            order=schedule_orders.naive,
            in_flight=_one,
            idle_share=_every_micro_batch,
            is_dominated=True,
        ),
        PipelineSchedule.GPIPE: Schedule(
            order=schedule_orders.gpipe, in_flight=_all, idle_share=_a_chunk, is_dominated=True
        ),
        PipelineSchedule.ONE_FORWARD_ONE_BACKWARD: Schedule(
            order=schedule_orders.one_forward_one_backward,
            in_flight=_run_ahead,
            idle_share=_a_chunk,
        ),
        PipelineSchedule.INTERLEAVED: Schedule(
            order=schedule_orders.interleaved,
            in_flight=_run_ahead,
            idle_share=_a_chunk,
            is_grouped=True,
            chunks=range(2, MOST_CHUNKS + 1),
        ),
        PipelineSchedule.ZERO_BUBBLE_H1: Schedule(
            order=schedule_orders.zero_bubble_h1,
            in_flight=_every_stage,
            waiting=_put_off,
            idle_share=_but_weights,
            splits_backward=True,
        ),
        PipelineSchedule.ZERO_BUBBLE_V: Schedule(
            order=schedule_orders.zero_bubble_v,
            in_flight=_held_in_a_v,
            waiting=_put_off_in_a_v,
            idle_share=_longest_half,
            splits_backward=True,
            is_v_shaped=True,
            chunks=range(2, 3),
        ),
    }
)


def in_flight(s: Strategy, index: Amount) -> Amount:
    """Return the micro-batches whose activations a stage holds at once; 1 without a pipeline."""
    held = _by_schedule(s, lambda schedule: schedule.in_flight(s, index))
    return np.where(np.asarray(s.pipeline_parallel_size) > 1, held, 1.0)


def waiting(s: Strategy, index: Amount) -> Amount:
    """Return the micro-batches that wait for weight gradients after a backward; 0 without a pipeline."""
    held = _by_schedule(s, lambda schedule: schedule.waiting(s, index))
    return np.where(np.asarray(s.pipeline_parallel_size) > 1, held, 0.0)


def last_stage(s: Strategy) -> Amount:
    """Return the index of the stage with the model's last layers: the first one's where the chunks run in a V."""
    is_v = _by_schedule(s, lambda schedule: schedule.is_v_shaped) > 0
    return np.where(is_v, 0, np.asarray(s.pipeline_parallel_size) - 1)


def turns(s: Strategy, index: Amount) -> Amount:
    """Return 1 for the stage whose chunks follow each other, at the turn of a V, else 0."""
    is_v = _by_schedule(s, lambda schedule: schedule.is_v_shaped) > 0
    last = np.asarray(s.pipeline_parallel_size) - 1
    return np.where(is_v & (np.asarray(index) == last) & (last > 0), 1.0, 0.0)


def idle_share(s: Strategy, whole: MicroBatchSeconds) -> Amount:
    """Return what a layout's schedule leaves idle of a micro-batch through the other stages."""
    return _by_schedule(s, lambda schedule: schedule.idle_share(s, whole))


def splits_backward(s: Strategy) -> Truth:
    """Return whether a layout's schedule puts off weight gradients."""
    found: Truth = _by_schedule(s, lambda schedule: schedule.splits_backward) > 0
    return found


def is_grouped(s: Strategy) -> Truth:
    """Return whether micro-batches of a layout pass its chunks in groups."""
    found: Truth = _by_schedule(s, lambda schedule: schedule.is_grouped) > 0
    return found


def fewest_chunks(s: Strategy) -> Whole:
    """Return the fewest chunks of layers on a stage that a layout's schedule is defined for."""
    found = _by_schedule(s, lambda schedule: schedule.chunks.start)
    return np.asarray(found, dtype=np.int64)


def chunks_are_defined(s: Strategy) -> Truth:
    """Return whether a layout's schedule is defined for its chunks of layers on a stage."""
    virtual = np.asarray(s.virtual_pipeline_size)
    found: Truth = _by_schedule(s, lambda each: np.where(np.isin(virtual, each.chunks), 1, 0)) > 0
    return found


def _by_schedule(s: Strategy, of: Callable[[Schedule], Amount]) -> Amount:
    """Return what the layout's schedule, or that of each row, gives; only those there are asked."""
    column = s.pipeline_schedule
    if not isinstance(column, np.ndarray):
        return of(SCHEDULES[PipelineSchedule.numbered(column)])
    found: Amount = 0
    for schedule, is_own in _rows_of_schedules(column):
        found = np.where(is_own, of(schedule), found)
    return found


@remembered(2)
def _rows_of_schedules(column: Column) -> tuple[tuple[Schedule, Column], ...]:
    numbers = np.flatnonzero(np.bincount(column.reshape(-1))).tolist()
    return tuple(
        (SCHEDULES[PipelineSchedule.numbered(number)], column == number) for number in numbers
    )
