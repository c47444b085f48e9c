"""Pipeline schedules as timelines, and the split of layers over stages that they run best with.

A stage does one thing at a time, in the order that its schedule gives. A forward waits for the
forward before it in the model, a backward for the backward behind it, the last one for its forward.
"""

from collections import deque
from collections.abc import Generator, Iterable, Sequence

import numpy as np

from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.term import Column
from planner.domain.strategy import PipelineSchedule, nearest_multiples
from planner.parallel.pipeline_schedules import SCHEDULES, Schedule
from planner.parallel.schedule_orders import Kind, Operation, Shape

MOST_OPERATIONS = 2**19
MOST_LAYERS = 1024
MOST_SECONDS = 1e12

_LIKE = 1 + 1e-9
"""Sums of the same layers in another order differ by less."""


@frozen
class StageSeconds:
    """How long a stage takes for one micro-batch, all its chunks together."""

    forward: float
    backward: float
    """All of it, recompute and weight gradients included."""
    weight: float = 0.0
    """The part of backward that can be put off: the weight gradients."""


@frozen
class Span:
    """When a stage ran an operation."""

    stage: int
    operation: Operation
    start_seconds: float
    end_seconds: float


@frozen
class Timeline:
    """All operations of a step, and what follows from them."""

    spans: tuple[Span, ...]
    """By stage, then by start."""
    seconds: float
    """From the first start to the last end, over all stages."""
    bubble_fraction: float
    """Idle share of all stages' time, waiting for transfers included."""
    in_flight: tuple[float, ...]
    """Micro-batches whose activations each stage holds at its peak, a chunk counting 1 / v.

    They are held from the forward to the end of backward, its put-off part included.
    """


def simulate(
    schedule: PipelineSchedule,
    stages: Sequence[StageSeconds],
    micro_batches: int,
    virtual: int = 1,
    transfer_seconds: float = 0.0,
) -> Timeline:
    """Return the timeline of one step's forwards and backwards.

    Args:
        schedule: in which order.
        stages: of one micro-batch, from the stage with the first layers to the last.
        micro_batches: of a step.
        virtual: chunks of layers on each stage, equal shares of its seconds.
        transfer_seconds: from one stage to the next; it delays the receiver and occupies nobody.

    Leaves out: sends that wait for their receive, several transfers sharing a link, the data-
    parallel reduction and the optimizer.

    Raises:
        InvalidInputError: numbers that the schedule is not defined for.
    """
    chosen = SCHEDULES[schedule]
    shape = Shape(stages=len(stages), micro_batches=micro_batches, virtual=virtual)
    _check_shape(schedule, shape)
    _check_seconds(stages, transfer_seconds)
    spans = _run(chosen, shape, stages, transfer_seconds)
    seconds = max(run[-1].end_seconds for run in spans)
    busy = micro_batches * sum(stage.forward + stage.backward for stage in stages)
    return Timeline(
        spans=tuple(span for run in spans for span in run),
        seconds=seconds,
        bubble_fraction=max(0.0, 1 - busy / (len(stages) * seconds)) if seconds else 0.0,
        in_flight=tuple(_most_held(chosen, run) / virtual for run in spans),
    )


def balance(
    block_seconds: Sequence[float], first_seconds: float, last_seconds: float, stages: int
) -> tuple[int, ...]:
    """Return the layers of each stage so that the slowest stage is as fast as can be.

        minimize max(seconds of a stage), then sum(seconds of a stage ** 2)

    Of what remains equal, the earlier stages get fewer layers: they hold more micro-batches. Every
    stage gets a layer.

    Args:
        block_seconds: forward and backward of each layer, in order.
        first_seconds: what the first stage does besides: embeddings.
        last_seconds: what the last stage does besides: head and loss.
        stages: over how many to split; with chunks, p * v.

    Leaves out: stages that hold only embeddings or the head.

    Raises:
        InvalidInputError: fewer layers than stages, or seconds that are no times.
    """
    num_layers = len(block_seconds)
    _check_split(num_layers, stages)
    _check_times((*block_seconds, first_seconds, last_seconds))
    ends = np.concatenate(([0.0], np.cumsum(block_seconds)))
    seconds = ends[np.newaxis, :] - ends[:, np.newaxis]
    seconds[np.tril_indices(num_layers + 1)] = np.inf
    seconds[0, :] += first_seconds
    seconds[:, num_layers] += last_seconds
    slowest = _split(np.maximum, seconds, stages)[0]
    squares = np.where(seconds <= slowest * _LIKE, seconds, np.inf) ** 2
    return _split(np.add, squares, stages)[1]


def _check_shape(name: PipelineSchedule, shape: Shape) -> None:
    chunks = SCHEDULES[name].chunks
    if shape.stages < 1:
        raise InvalidInputError(
            "a pipeline has at least one stage",
            hint="at least 1",
            field="strategy.pipeline_parallel_size",
        )
    if shape.virtual not in chunks:
        nearest = min(max(shape.virtual, chunks[0]), chunks[-1])
        raise InvalidInputError(
            f"{name} is not defined for {shape.virtual} chunks on each stage",
            hint=f"nearest: {nearest}",
            field="strategy.virtual_pipeline_size",
        )
    _check_micro_batches(name, shape)


def _check_micro_batches(name: PipelineSchedule, shape: Shape) -> None:
    field = "strategy.gradient_accumulation_steps"
    if shape.micro_batches < 1:
        raise InvalidInputError(
            "a step has at least one micro-batch", hint="at least 1", field=field
        )
    if SCHEDULES[name].is_grouped and shape.micro_batches % shape.stages:
        raise InvalidInputError(
            f"{name} runs micro-batches in groups of {shape.stages} stages,"
            f" which do not divide {shape.micro_batches}",
            hint=nearest_multiples(shape.micro_batches, shape.stages),
            field=field,
        )
    kinds = 3 if SCHEDULES[name].splits_backward else 2
    operations = kinds * shape.stages * shape.micro_batches * shape.virtual
    if operations > MOST_OPERATIONS:
        raise InvalidInputError(
            f"{shape.stages} stages x {shape.micro_batches} micro-batches x {shape.virtual} chunks"
            f" are {operations:,} operations",
            hint=f"at most {MOST_OPERATIONS:,} are simulated: use fewer micro-batches",
            field=field,
        )


def _check_seconds(stages: Sequence[StageSeconds], transfer_seconds: float) -> None:
    _check_times(
        (
            transfer_seconds,
            *(time for stage in stages for time in (stage.forward, stage.backward, stage.weight)),
        )
    )
    for index, stage in enumerate(stages):
        if stage.weight > stage.backward:
            raise InvalidInputError(
                f"stage {index} puts off {stage.weight:g} s of a backward of {stage.backward:g} s",
                hint=f"at most {stage.backward:g} s",
            )


def _check_times(times: Iterable[float]) -> None:
    for time in times:
        if not 0 <= time <= MOST_SECONDS:
            raise InvalidInputError(
                f"{time:g} s is no time that a stage can take",
                hint=f"between 0 and {MOST_SECONDS:g} s",
            )


def _check_split(num_layers: int, stages: int) -> None:
    if not 1 <= stages <= num_layers:
        raise InvalidInputError(
            f"{num_layers} layers do not fill {stages} pipeline stages",
            hint=f"between 1 and {num_layers}",
            field="strategy.pipeline_parallel_size",
        )
    if num_layers > MOST_LAYERS:
        raise InvalidInputError(
            f"{num_layers:,} layers are too many to balance", hint=f"at most {MOST_LAYERS:,}"
        )


_Step = tuple[int, int]
"""A micro-batch and how far it is: forward through all positions from 0 on, then back again."""


def _run(
    schedule: Schedule, shape: Shape, stages: Sequence[StageSeconds], transfer_seconds: float
) -> list[list[Span]]:
    """Return every stage's spans: each works until a step is missing, and on when it is done."""
    runs: list[list[Span]] = [[] for _ in stages]
    done: dict[_Step, Span] = {}
    waiting: dict[_Step, Generator[_Step]] = {}
    ready = deque(
        _work(index, _tasks(schedule, shape, index, stage), transfer_seconds, runs[index], done)
        for index, stage in enumerate(stages)
    )
    while ready:
        worker = ready.popleft()
        for step in worker:
            if step not in done:
                waiting[step] = worker
                break
            if step in waiting:
                ready.append(waiting.pop(step))
    return runs


def _work(
    stage: int,
    tasks: Iterable[tuple[Operation, int | None, float]],
    transfer_seconds: float,
    run: list[Span],
    done: dict[_Step, Span],
) -> Generator[_Step]:
    """Append a stage's spans to its run; yield each step that it waits for or has done."""
    free = 0.0
    for operation, depth, lasts in tasks:
        if depth:
            needed = (operation.micro_batch, depth - 1)
            if needed not in done:
                yield needed
            before = done[needed]
            delay = 0.0 if before.stage == stage else transfer_seconds
            free = max(free, before.end_seconds + delay)
        start, free = free, free + lasts
        span = Span(stage=stage, operation=operation, start_seconds=start, end_seconds=free)
        run.append(span)
        if depth is not None:
            step = (operation.micro_batch, depth)
            done[step] = span
            yield step


def _tasks(
    schedule: Schedule, shape: Shape, index: int, stage: StageSeconds
) -> Generator[tuple[Operation, int | None, float]]:
    """Yield a stage's operations, how deep each is in its micro-batch's path, and its seconds."""
    put_off = stage.weight if schedule.splits_backward else 0.0
    forward, backward, weight = (
        seconds / shape.virtual for seconds in (stage.forward, stage.backward - put_off, put_off)
    )
    positions = [schedule.position(shape, index, chunk) for chunk in range(shape.virtual)]
    turn = 2 * shape.stages * shape.virtual - 1
    for operation in schedule.order(shape, index):
        position = positions[operation.chunk]
        if operation.kind is Kind.FORWARD:
            yield operation, position, forward
        elif operation.kind is Kind.BACKWARD:
            yield operation, turn - position, backward
        else:
            yield operation, None, weight


def _most_held(schedule: Schedule, spans: Sequence[Span]) -> int:
    """Return the most chunks of micro-batches that a stage holds, in the order of its spans."""
    last = Kind.WEIGHT if schedule.splits_backward else Kind.BACKWARD
    change = {Kind.FORWARD: 1, last: -1}
    held = np.cumsum([change.get(span.operation.kind, 0) for span in spans])
    return int(held.max())


def _split(combine: np.ufunc, costs: Column, stages: int) -> tuple[float, tuple[int, ...]]:
    """Return the least cost of a split into stages, and the layers of each.

    Args:
        combine: of the stage's cost and of what follows it.
        costs: of a stage [first layer, layer after its last].
        stages: each has a layer, so a stage's first and last layers lie in a band of `width`.
    """
    width = len(costs) - stages
    rest = np.full(width, np.inf)
    rest[-1] = 0.0
    ends: list[Column] = []
    for stage in reversed(range(stages)):
        table = combine(costs[stage : stage + width, stage + 1 : stage + 1 + width], rest)
        rest = table.min(axis=1)
        ends.append(np.argmax(table <= rest[:, np.newaxis] * _LIKE, axis=1))
    layers, start = [], 0
    for end in reversed(ends):
        layers.append(1 + int(end[start]) - start)
        start = int(end[start])
    return float(rest[0]), tuple(layers)
