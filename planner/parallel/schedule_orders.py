"""In which order a pipeline stage runs its operations, one function per schedule.

Notation: p stages, i the stage's index; m micro-batches; v chunks of layers on each stage. F, B, W:
a forward, a backward, and the weight gradients where the schedule puts them off behind B.
"""

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import chain, count

from planner.core.frozen import frozen


class Kind(StrEnum):
    """What a stage computes."""

    FORWARD = "forward"
    BACKWARD = "backward"
    """All of backward, or without the weight gradients where those are put off."""
    WEIGHT = "weight"
    """Gradients of the weights, which no other stage waits for."""


@frozen
class Operation:
    """One thing that a stage does: the pass of a micro-batch through one of its chunks."""

    kind: Kind
    micro_batch: int
    chunk: int = 0


@frozen
class Shape:
    """The numbers that an order depends on."""

    stages: int
    micro_batches: int
    virtual: int = 1


def naive(shape: Shape, _stage: int) -> list[Operation]:
    """Model parallelism without a pipeline: a micro-batch passes alone through all stages and back.

    Source: Huang et al., arXiv:1811.06965, figure 2b.
    """
    micro_batches = range(shape.micro_batches)
    return [op for j in micro_batches for op in (_forward(j), _backward(j))]


def gpipe(shape: Shape, _stage: int) -> list[Operation]:
    """All forwards, then all backwards, the last micro-batch first.

    Source: Huang et al., arXiv:1811.06965, figure 2c.
    """
    forwards = [_forward(j) for j in range(shape.micro_batches)]
    return forwards + [_backward(j) for j in reversed(range(shape.micro_batches))]


def one_forward_one_backward(shape: Shape, stage: int) -> list[Operation]:
    """1F1B: p - i - 1 forwards, then forward and backward in turn; the bubble of GPipe, less memory.

    Source: Narayanan et al., arXiv:2104.04473, section 2.2.1.
    """
    micro_batches = range(shape.micro_batches)
    return _alternate(
        [_forward(j) for j in micro_batches],
        [_backward(j) for j in micro_batches],
        warm_up=shape.stages - stage - 1,
    )


def interleaved(shape: Shape, stage: int) -> list[Operation]:
    """1F1B over chunks: p micro-batches through one chunk, the same p through the next.

        warm-up = 2 * (p - i - 1) + (v - 1) * p

    Source: Narayanan et al., arXiv:2104.04473, section 2.2.2; Megatron-LM,
    megatron/core/pipeline_parallel/schedules.py, get_pp_rank_microbatches.
    """
    p, v = shape.stages, shape.virtual
    turns = [
        (group + j, chunk)
        for group in range(0, shape.micro_batches, p)
        for chunk in range(v)
        for j in range(p)
    ]
    return _alternate(
        [_forward(j, chunk) for j, chunk in turns],
        [_backward(j, v - 1 - chunk) for j, chunk in turns],
        warm_up=2 * (p - stage - 1) + (v - 1) * p,
    )


def zero_bubble_h1(shape: Shape, stage: int) -> list[Operation]:
    """1F1B with every W put off by i backwards, so that all stages hold p micro-batches.

        bubble = (p - 1) * max(F, B, F + B - W), from m = p on; the paper's is the last of the three

    Notation: F, B, W here their seconds, the same on all stages.
    Source: Qi et al., arXiv:2401.10241, section 2.1 and table 2. What is held between B and W is
    less than before B: by the paper (p - i) micro-batches whole and i of the rest.
    """
    order: list[Operation] = []
    put_off: deque[Operation] = deque()
    for operation in one_forward_one_backward(shape, stage):
        order.append(operation)
        if operation.kind is Kind.BACKWARD:
            put_off.append(Operation(kind=Kind.WEIGHT, micro_batch=operation.micro_batch))
            if len(put_off) > stage:
                order.append(put_off.popleft())
    return [*order, *put_off]


def zero_bubble_v(shape: Shape, stage: int) -> list[Operation]:
    """ZB-V: chunk 0 runs down the stages and chunk 1 back up; no waiting where F = B = W.

        bubble = (p - 1) * F / 2, from m = 2 * p - 1 on, where F = B = W

    Source: Qi et al., arXiv:2401.10241, section 6, and arXiv:2405.15362; the same order as
    torch.distributed.pipelining.ScheduleZBVZeroBubble. With fewer micro-batches than 2 * p - 1,
    the order for 2 * p - 1 without the missing ones.
    """
    p, i = shape.stages, stage
    n = max(2 * p - 1, shape.micro_batches)
    phases = (
        (2 * (p - i) - 1, "F0"),
        (i, "F1 F0"),
        (p - i, "F1 B1 W1"),
        (n - 2 * p + 1 + i, "F0 B0 W0 F1 B1 W1"),
        (p - i - 1, "B0 W0 F1 B1 W1"),
        (i, "B0 B1"),
        (p - i, "B0 W0"),
        (i, "W1"),
        (i, "W0"),
    )
    kinds = {"F": Kind.FORWARD, "B": Kind.BACKWARD, "W": Kind.WEIGHT}
    names = chain.from_iterable(steps.split() * times for times, steps in phases)
    next_of = {kind + chunk: count() for kind in kinds for chunk in "01"}
    order = [
        Operation(kind=kinds[name[0]], micro_batch=next(next_of[name]), chunk=int(name[1]))
        for name in names
    ]
    return [operation for operation in order if operation.micro_batch < shape.micro_batches]


def _alternate(
    forwards: Sequence[Operation], backwards: Sequence[Operation], warm_up: int
) -> list[Operation]:
    steady = max(0, len(forwards) - warm_up)
    pairs = zip(forwards[warm_up:], backwards, strict=False)
    return [*forwards[:warm_up], *chain.from_iterable(pairs), *backwards[steady:]]


@lru_cache(maxsize=2**14)
def _forward(micro_batch: int, chunk: int = 0) -> Operation:
    return Operation(kind=Kind.FORWARD, micro_batch=micro_batch, chunk=chunk)


@lru_cache(maxsize=2**14)
def _backward(micro_batch: int, chunk: int = 0) -> Operation:
    return Operation(kind=Kind.BACKWARD, micro_batch=micro_batch, chunk=chunk)
