"""One micro-batch through the parts of a model, a stage, or all stages: compute and what is exposed.

Notation: A gradient accumulation steps; r 1 where recompute repeats the forward pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from planner.core.term import Amount
from planner.domain.job import Job
from planner.domain.model import Numerics, Part
from planner.domain.strategy import Strategy
from planner.parallel import partition
from planner.parallel.activations import shards_parameters
from planner.parallel.partition import Stage
from planner.parallel.schedule import StageSeconds
from planner.step_time import communication, compute


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """Seconds of one micro-batch through a part, a stage, or the model."""

    forward: Amount = 0.0
    backward: Amount = 0.0
    """Recompute included."""
    weight: Amount = 0.0
    """The part of backward that zero-bubble schedules put off: weight gradients."""
    tensor: Amount = 0.0
    """Exposed communication, forward and backward together, by kind."""
    context: Amount = 0.0
    expert: Amount = 0.0
    doubt: Amount = 0.0
    """How far forward and backward together may be off to each side."""

    @property
    def spread(self) -> Amount:
        """Half-width of the range of forward and backward, as a fraction of them."""
        return self.doubt / np.maximum(self.forward + self.backward, 1e-12)

    @property
    def seconds(self) -> Amount:
        """All of it."""
        return self.forward + self.backward + self.tensor + self.context + self.expert

    def plus(self, times: Amount, other: "Pass") -> "Pass":
        """Return this and so many of the other, one after the other."""
        return Pass(
            forward=self.forward + times * other.forward,
            backward=self.backward + times * other.backward,
            weight=self.weight + times * other.weight,
            tensor=self.tensor + times * other.tensor,
            context=self.context + times * other.context,
            expert=self.expert + times * other.expert,
            doubt=self.doubt + times * other.doubt,
        )

    def where(self, condition: Amount, other: "Pass") -> "Pass":
        """Return this where the condition holds, row by row, else the other."""
        return Pass(
            forward=np.where(condition, self.forward, other.forward),
            backward=np.where(condition, self.backward, other.backward),
            weight=np.where(condition, self.weight, other.weight),
            tensor=np.where(condition, self.tensor, other.tensor),
            context=np.where(condition, self.context, other.context),
            expert=np.where(condition, self.expert, other.expert),
            doubt=np.where(condition, self.doubt, other.doubt),
        )


def part_pass(job: Job, s: Strategy, part: Part) -> Pass:
    """Return a micro-batch through one occurrence of a part, the host's floor included."""
    precision = job.precision
    replicated = _part_pass_in(job, s, part, precision.replicated_numerics)
    if precision.sharded_numerics == precision.replicated_numerics:
        return replicated
    sharded = _part_pass_in(job, s, part, precision.sharded_numerics)
    return sharded.where(shards_parameters(job, s), replicated)


def _part_pass_in(job: Job, s: Strategy, part: Part, numerics: Numerics) -> Pass:
    """Compute stretched to the host's pace, and what is exposed of the exchanges within the part.

        tensor = (1 + r + 1 - o) * exchange;  expert = (2 + r) * exchange

    Notation: r 1 where recompute repeats the forward pass; o the framework's tensor_overlap_fraction.
    """
    forward = compute.forward(job, s, part, numerics)
    backward = compute.backward(job, s, part, numerics)
    exchange = communication.tensor_parallel(job, s, part)
    experts = communication.expert_parallel(job, s, part)
    again: Amount = 0.0
    if part.is_block:
        again = np.where(s.recompute == "full", 1.0, 0.0)
        backward = backward + again * forward + _selective(job, s, part, numerics)
    moving = compute.memory_bound(job, s, part, numerics, again)
    idle = 0.0
    if part.name == "head":
        loss = compute.loss(job, s)
        forward, backward, moving = forward + loss / 3, backward + 2 * loss / 3, moving + loss
        idle = job.framework.host.micro_batch_seconds
    tensor = (1 + again + 1 - job.framework.overlap.tensor_fraction) * exchange
    expert = (2 + again) * experts
    busy = forward + backward
    stretch = compute.host_stretch(job, s, part, busy, tensor + expert)
    return Pass(
        forward=forward * stretch + idle,
        backward=backward * stretch,
        weight=compute.matmuls(job, s, part) * stretch,
        tensor=tensor,
        context=_context(job, s, part),
        expert=expert,
        doubt=_doubt(job, busy, moving, (stretch - 1) * busy + idle),
    )


def _selective(job: Job, s: Strategy, part: Part, numerics: Numerics) -> Amount:
    """Seconds that recompute="selective" adds to backward."""
    is_selective = np.asarray(s.recompute) == "selective"
    if not np.any(is_selective):
        return 0.0
    return np.where(is_selective, compute.selective_recompute(job, s, part, numerics), 0.0)


def _context(job: Job, s: Strategy, part: Part) -> Amount:
    """Seconds of both passes' exchange of keys and values that attention does not hide.

        max(0, exchange - attention) of a ring, whose hops overlap with attention to the last one

    All of it where attention must wait for all keys.
    """
    if np.all(np.asarray(s.context_parallel_size) == 1):
        return 0.0
    forward, backward = communication.context_parallel(job, s, part)
    if job.framework.context_parallel.exchange != "ring":
        return forward + backward
    looking, looking_back = (
        compute.attention(job, s, part),
        compute.attention_backward(job, s, part),
    )
    return np.maximum(0.0, forward - looking) + np.maximum(0.0, backward - looking_back)


def _doubt(job: Job, busy: Amount, moving: Amount, waiting: Amount) -> Amount:
    """Return how far a part's seconds may be off, by what they are spent on.

        seconds = compute * (busy - moving) + memory_bound * moving + host * waiting

    Notation: moving: the part of the GPU's busy time that is memory-bound; waiting: for the host;
    compute (at least the matmul curve's median error), memory_bound, host: the record's spreads.
    Source: the framework record's uncertainty section.
    """
    spreads = job.framework.uncertainty
    matmuls = max(job.cluster.gpu.gemm.spread, spreads.compute)
    return matmuls * (busy - moving) + spreads.memory_bound * moving + spreads.host * waiting


def pace(job: Job, s: Strategy, passes: list[tuple[Part, Pass]]) -> tuple[Pass, Pass, Stage]:
    """Return one micro-batch through the whole model, through the slowest stage, and that stage."""
    whole = Pass()
    for part, one in passes:
        whole = whole.plus(part.count, one)
    by_part = {id(part): one for part, one in passes}
    heaviest = partition.heaviest_stages(job, s)
    stages = [(_through(job, at, by_part), at) for at in heaviest]
    slowest, busiest = reduce(_slower, stages)
    return whole, slowest, busiest


def _through(job: Job, at: Stage, by_part: Mapping[int, Pass]) -> Pass:
    """Seconds of one micro-batch through a stage."""
    parts = partition.occurrences(job.model, at)
    return reduce(lambda sum_, one: sum_.plus(one[1], by_part[id(one[0])]), parts, Pass())


def _slower(one: tuple[Pass, Stage], other: tuple[Pass, Stage]) -> tuple[Pass, Stage]:
    """Return the slower of two stages, row by row; the first of equals."""
    is_slower = other[0].seconds > one[0].seconds
    return other[0].where(is_slower, one[0]), _choose(is_slower, other[1], one[1])


def _choose(condition: Amount, one: Stage, other: Stage) -> Stage:
    return replace(
        one,
        index=np.where(condition, one.index, other.index),
        blocks=tuple(
            np.where(condition, a, b) for a, b in zip(one.blocks, other.blocks, strict=True)
        ),
        is_first=np.where(condition, one.is_first, other.is_first),
        is_last=np.where(condition, one.is_last, other.is_last),
        in_flight=np.where(condition, one.in_flight, other.in_flight),
    )


def stage_seconds(job: Job, s: Strategy) -> tuple[StageSeconds, ...]:
    """Return forward and backward seconds of a micro-batch on every pipeline stage of one layout.

    What is exchanged within a pass counts to forward and backward as compute does.
    """
    by_part = {id(part): part_pass(job, s, part) for part in job.model.parts}
    found = []
    for index in range(int(s.pipeline_parallel_size)):
        one = _through(job, partition.stage(job, s, index), by_part)
        compute_seconds = float(one.forward + one.backward)
        stretch = float(one.seconds) / max(compute_seconds, 1e-12)
        found.append(
            StageSeconds(
                forward=float(one.forward) * stretch,
                backward=float(one.backward) * stretch,
                weight=float(one.weight) * stretch,
            )
        )
    return tuple(found)
