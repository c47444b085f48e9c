"""One micro-batch through the parts of a model, a stage, or all stages: compute and what is exposed.

Notation: A gradient accumulation steps; r 1 where recompute repeats the forward pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, auto
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from planner.core.term import Amount, Column, Truth
from planner.domain.job import Job
from planner.domain.kept import Numerics
from planner.domain.model import Part
from planner.domain.strategy import (
    ALL_LAYERS,
    FIELDS,
    Recompute,
    Strategy,
    Table,
    first_of_alike,
    rows,
)
from planner.parallel import partition
from planner.parallel.activations import gathers_parameters, tokens
from planner.parallel.partition import Stage
from planner.parallel.recomputed_modules import repeats_core_attention
from planner.parallel.schedule import StageSeconds
from planner.step_time import (
    adapters,
    communication,
    compute,
    elementwise,
    fp8_casts,
    host,
    rates,
    recomputed_modules,
    vocabulary,
)


class Spent(IntEnum):
    """What the seconds of a micro-batch are spent on: rows of `MicroBatch.seconds_by_kind`."""

    FORWARD_MATMULS = 0
    FORWARD_ATTENTION = auto()
    FORWARD_ELEMENTWISE = auto()
    FORWARD_CASTS_TO_FP8 = auto()
    FORWARD_ADAPTERS = auto()
    FORWARD_DEQUANTISATION = auto()
    FORWARD_LOSS = auto()
    FORWARD_LAUNCHES = auto()
    """What the GPU waits for the host to launch its work."""
    INPUT_GRADIENTS = auto()
    WEIGHT_GRADIENTS = auto()
    BACKWARD_ATTENTION = auto()
    BACKWARD_ELEMENTWISE = auto()
    BACKWARD_CASTS_TO_FP8 = auto()
    BACKWARD_ADAPTERS = auto()
    BACKWARD_DEQUANTISATION = auto()
    BACKWARD_LOSS = auto()
    RECOMPUTE = auto()
    BACKWARD_LAUNCHES = auto()
    TENSOR = auto()
    """Exposed communication, forward and backward together, by kind."""
    CONTEXT = auto()
    EXPERT = auto()

    @property
    def words(self) -> str:
        """Return what a ledger calls it, in forward and in backward alike."""
        name = self.name.lower().removeprefix("forward_").removeprefix("backward_")
        return name.replace("_", " ")


class Aside(IntEnum):
    """What is said of those seconds and adds none to them: the rows after those of `Spent`."""

    PUT_OFF = len(Spent)
    """The part of backward that zero-bubble schedules put off."""
    MOVING = auto()
    """The part of forward and backward that is bound by memory, recompute's too."""
    LATE = auto()
    """What a host as slow as it may be would add."""


FORWARD = range(Spent.FORWARD_MATMULS, Spent.INPUT_GRADIENTS)
BACKWARD = range(Spent.INPUT_GRADIENTS, Spent.TENSOR)
OF_ADAPTERS = frozenset(
    {
        Spent.FORWARD_ADAPTERS,
        Spent.FORWARD_DEQUANTISATION,
        Spent.BACKWARD_ADAPTERS,
        Spent.BACKWARD_DEQUANTISATION,
    }
)
"""What only training beside frozen weights spends."""
OF_FP8 = frozenset({Spent.FORWARD_CASTS_TO_FP8, Spent.BACKWARD_CASTS_TO_FP8})
"""What only matmuls in fp8 spend."""
_EXCHANGES = range(Spent.TENSOR, len(Spent))

_CAST_BYTES = 6
"""Of a weight: read in fp32, written in 16 bit."""
IDLE = (
    "data_parallel_replicate_size",
    "data_parallel_shard_size",
    "expert_tensor_parallel_size",
    "pipeline_parallel_size",
    "virtual_pipeline_size",
    "pipeline_schedule",
    "gradient_accumulation_steps",
    "recompute_layers",
    "activation_offload_layers",
    "offload",
    "synchronize_every",
)
"""The fields of a layout that a part's seconds do not depend on, but by its ranks per expert, by whether the model
is divided (a whole one is compiled as one graph) and as said below."""
_DECISIVE = (*(name for name in FIELDS if name not in IDLE), "ranks_per_expert", "divides_model")
"""Those that decide them: few of a search's rows differ in these, and rows that are alike are timed once."""
_OF_WAITS = ("pipeline_parallel_size",)
"""Beside them, where exchanges wait longer next to a pipeline."""

_OF_STAGES = ("pipeline_parallel_size", "pipeline_schedule", "recompute_layers")
"""Those that decide besides what a stage runs, and which is the slowest."""

_OF_SOME_LAYERS = ("recompute_layers", "pipeline_parallel_size")
"""Those that decide besides, where not all blocks recompute."""


@dataclass(frozen=True)
class MicroBatch:
    """Seconds of one micro-batch through a part, a stage, or the model."""

    seconds_by_kind: NDArray[np.float64]
    """[kind of `Spent`, then of `Aside`], or [kind, layout]."""

    def of(self, kind: Spent | Aside) -> Amount:
        """Return the seconds of one kind."""
        amount: Amount = self.seconds_by_kind[kind]
        return amount

    @cached_property
    def forward(self) -> Amount:
        """Return the seconds of forward, its exchanges left out."""
        return _total(self.seconds_by_kind, FORWARD)

    @cached_property
    def backward(self) -> Amount:
        """Return the seconds of backward, recompute included, its exchanges left out."""
        return _total(self.seconds_by_kind, BACKWARD)

    @cached_property
    def seconds(self) -> Amount:
        """Return all of it."""
        return self.forward + self.backward + _total(self.seconds_by_kind, _EXCHANGES)

    @property
    def computing(self) -> Amount:
        """Return forward and backward."""
        return self.forward + self.backward

    @property
    def waiting(self) -> Amount:
        """Return the part of them in which the GPU waits for the host."""
        return self.of(Spent.FORWARD_LAUNCHES) + self.of(Spent.BACKWARD_LAUNCHES)

    def at(self, rows: Column) -> "MicroBatch":
        """Return the seconds of some rows."""
        return MicroBatch(self.seconds_by_kind[:, rows])

    def where(self, condition: Truth, other: "MicroBatch") -> "MicroBatch":
        """Return this where the condition holds, row by row, else the other."""
        return MicroBatch(np.where(condition, self.seconds_by_kind, other.seconds_by_kind))


def _total(spent: Column, kinds: range) -> Amount:
    amount: Amount = spent[kinds.start : kinds.stop].sum(axis=0)
    return amount


def part_seconds(job: Job, s: Strategy, part: Part) -> MicroBatch:
    """Return a micro-batch through one occurrence of a part, the host's floor included."""
    precision, is_sharded = job.precision, gathers_parameters(job, s)
    alike = _in_any_numerics(job, s, part)
    if precision.sharded_numerics == precision.replicated_numerics or not np.any(is_sharded):
        return _part_seconds_in(job, s, part, precision.replicated_numerics, alike)
    sharded = _part_seconds_in(job, s, part, precision.sharded_numerics, alike)
    if np.all(is_sharded):
        return sharded
    replicated = _part_seconds_in(job, s, part, precision.replicated_numerics, alike)
    return sharded.where(is_sharded, replicated)


def _in_any_numerics(job: Job, s: Strategy, part: Part) -> Column:
    """Return, as a micro-batch has them, the seconds that do not depend on the numerics.

        tensor = ((1 + r) * (1 - f) + 1 - o) * exchange + (1 - f) * q * gathers + vocabulary
        expert = (2 + r) * exchange + q * modules - r * left_off

    Notation: r 1 where recompute repeats the forward pass, q the share of the blocks that repeat some of it; f and o as
    `communication.hidden_of_tensor` has them; gathers and modules what selective recompute exchanges again;
    vocabulary what `vocabulary.exchanged` has of the model's two ends.
    """
    spent = np.zeros((len(Spent) + len(Aside), *np.shape(tokens(job, s))))
    matmuls = compute.matmuls(job, s, part)
    spent[Spent.FORWARD_MATMULS] = spent[Spent.INPUT_GRADIENTS] = matmuls
    spent[Spent.WEIGHT_GRADIENTS] = compute.weight_gradients(job, s, part, matmuls)
    if job.fp8_recipe is not None:
        spent[Spent.FORWARD_CASTS_TO_FP8] = fp8_casts.forward_casts(job, s, part)
        spent[Spent.BACKWARD_CASTS_TO_FP8] = fp8_casts.backward_casts(job, s, part)
    spent[Aside.PUT_OFF] = matmuls + fp8_casts.operand_casts(job, s, part)
    spent[Spent.FORWARD_ATTENTION] = compute.attention(job, s, part)
    spent[Spent.BACKWARD_ATTENTION] = compute.attention_backward(job, s, part)
    if job.recipe.lora is not None:
        copied = adapters.dequantisation(job, s, part)
        spent[Spent.FORWARD_DEQUANTISATION] = spent[Spent.BACKWARD_DEQUANTISATION] = copied
        spent[Spent.FORWARD_ADAPTERS] = adapters.adapters(job, s, part)
        spent[Spent.BACKWARD_ADAPTERS] = adapters.adapters_backward(job, s, part)
    if part.name == "head":
        loss = compute.loss(job, s)
        spent[Spent.FORWARD_LOSS], spent[Spent.BACKWARD_LOSS] = loss / 3, 2 * loss / 3
    again = host.repeats_forward(job, s, part)
    in_forward, in_backward = communication.hidden_of_tensor(job, s)
    exchange = communication.tensor_parallel(job, s, part)
    share = partition.recomputed_share(job, s)
    summed, dealt = recomputed_modules.exchanges_again(job, s, part)
    gathers = share * (communication.gathered_again(job, s, part) + summed)
    spent[Spent.TENSOR] = ((1 + again) * (1 - in_forward) + 1 - in_backward) * exchange
    spent[Spent.TENSOR] += (1 - in_forward) * gathers + vocabulary.exchanged(job, s, part)
    spent[Spent.EXPERT] = (2 + again) * communication.expert_parallel(job, s, part) + share * dealt
    spent[Spent.EXPERT] -= again * recomputed_modules.exchange_left_off(job, s, part)
    spent[Spent.CONTEXT] = _context(job, s, part)
    return spent


def _part_seconds_in(
    job: Job, s: Strategy, part: Part, numerics: Numerics, alike: Column
) -> MicroBatch:
    spent = alike.copy()
    _compute(job, s, part, numerics, spent)
    _wait_for_host(job, s, part, spent)
    return MicroBatch(spent)


def _weight_casts(job: Job, s: Strategy, part: Part, numerics: Numerics) -> Amount:
    """Seconds in which autocast rounds the weights of a part in forward; their gradients' way back takes as long.

        seconds = (4 + 2) * weights / (hbm_fraction * hbm)

    Source: torch.autocast keeps the copies of a forward pass; ToCopyBackward0.
    Leaves out: the casts of inputs, which are elementwise work.
    """
    if numerics != Numerics.AUTOCAST or job.recipe.lora is not None:
        return 0.0
    return _CAST_BYTES * partition.rank_weights(part, s) / rates.elementwise_bandwidth(job)


def _compute(job: Job, s: Strategy, part: Part, numerics: Numerics, spent: Column) -> None:
    """Fill in the memory-bound work, and what is repeated."""
    forward = elementwise.forward(job, s, part, numerics)
    backward = elementwise.backward(job, s, part, numerics)
    more = compute.routing(job, s, part) + _weight_casts(job, s, part, numerics)
    biases, of_backward = compute.expert_biases(job, s, part)
    forward, backward = forward + more + biases, backward + more + of_backward
    spent[Spent.FORWARD_ELEMENTWISE], spent[Spent.BACKWARD_ELEMENTWISE] = forward, backward
    again = host.repeats_forward(job, s, part)
    moving = (1 + again) * forward + backward
    if part.is_block:
        repeated = again * (_total(spent, FORWARD) - recomputed_modules.left_off(job, s, part))
        spent[Spent.RECOMPUTE] = repeated + _selective(job, s, part, numerics)
    elif part.name == "head" and job.loss is not None and job.loss.repeats_head:
        spent[Spent.RECOMPUTE] = spent[Spent.FORWARD_MATMULS]
    spent[Aside.MOVING] = moving + spent[Spent.FORWARD_LOSS] + spent[Spent.BACKWARD_LOSS]


def _wait_for_host(job: Job, s: Strategy, part: Part, spent: Column) -> None:
    """Fill in what launching adds to the GPU's time, and what a slower host would add to that."""
    forward = _total(spent, FORWARD)
    backward = _total(spent, BACKWARD)
    exchanged = spent[Spent.TENSOR] + spent[Spent.EXPERT]
    launched, slower = host.launches(job, s, part), job.framework.uncertainty.host
    floor = launched + host.waits(job, s, part)
    stretch = host.host_stretch(job, floor, forward + backward, exchanged)
    record = job.framework.host
    idle = record.micro_batch_seconds if part.name == "head" else 0.0
    between = record.layer_seconds if part.is_block else 0.0
    spent[Spent.FORWARD_LAUNCHES] = (stretch - 1) * forward + idle
    spent[Spent.BACKWARD_LAUNCHES] = (stretch - 1) * backward + between
    spent[Aside.PUT_OFF] *= stretch
    late = host.host_stretch(job, floor + slower * launched, forward + backward, exchanged)
    spent[Aside.LATE] = (late - stretch) * (forward + backward) + slower * idle


def _selective(job: Job, s: Strategy, part: Part, numerics: Numerics) -> Amount:
    """Seconds that recompute="selective" adds to backward: the framework's own choice, or the named modules."""
    is_selective = np.asarray(s.recompute) == Recompute.SELECTIVE
    if not np.any(is_selective):
        return 0.0
    own = compute.selective_recompute(job, s, part, numerics)
    again = np.where(repeats_core_attention(s), own, 0.0)
    again = again + recomputed_modules.compute_again(job, s, part, numerics)
    return np.where(is_selective, partition.recomputed_share(job, s) * again, 0.0)


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


def pace(job: Job, s: Strategy) -> tuple[MicroBatch, MicroBatch, Stage]:
    """Return one micro-batch through the whole model, through the slowest stage, and that stage."""
    if not isinstance(s, Table):
        whole, slowest, index = _pace(job, s)
        return whole, slowest, partition.stage(job, s, index)
    first, which = first_of_alike(s, (*_DECISIVE, *_OF_STAGES))
    whole, slowest, index = _pace(job, rows(s, first))
    stage = partition.stage(job, s, np.broadcast_to(index, len(first))[which])
    return whole.at(which), slowest.at(which), stage


def _pace(job: Job, s: Strategy) -> tuple[MicroBatch, MicroBatch, Amount]:
    of_parts = _seconds_of_parts(job, s)
    counted = (part.count * of_parts[id(part)].seconds_by_kind for part in job.model.parts)
    whole = MicroBatch(reduce(np.add, counted))
    heaviest = partition.heaviest_stages(job, s)
    stages = ((_through(job, stage, of_parts), stage.index) for stage in heaviest)
    slowest, index = reduce(_slower, stages)
    return whole, slowest, index


def _seconds_of_parts(job: Job, s: Strategy) -> Mapping[int, MicroBatch]:
    if not isinstance(s, Table):
        return {id(part): part_seconds(job, s, part) for part in job.model.parts}
    more: tuple[str, ...] = _OF_WAITS if job.framework.host.exchange_seconds_per_rank > 0 else ()
    if np.any(s.recompute_layers < ALL_LAYERS):
        more = _OF_SOME_LAYERS
    first, which = first_of_alike(s, (*_DECISIVE, *more))
    few = rows(s, first)
    return {
        id(part): MicroBatch(part_seconds(job, few, part).seconds_by_kind[:, which])
        for part in job.model.parts
    }


def _through(job: Job, stage: Stage, of_parts: Mapping[int, MicroBatch]) -> MicroBatch:
    parts = partition.occurrences(job.model, stage)
    seconds = [times * of_parts[id(part)].seconds_by_kind for part, times in parts]
    return MicroBatch(np.asarray(reduce(np.add, seconds)))


def _slower(
    one: tuple[MicroBatch, Amount], other: tuple[MicroBatch, Amount]
) -> tuple[MicroBatch, Amount]:
    """Return the slower of two stages with its index, row by row; the first of equals."""
    is_slower = other[0].seconds > one[0].seconds
    return other[0].where(is_slower, one[0]), np.where(is_slower, other[1], one[1])


def stage_seconds(job: Job, s: Strategy) -> tuple[StageSeconds, ...]:
    """Return forward and backward seconds of a micro-batch on every pipeline stage of one layout.

    What is exchanged within a pass counts to forward and backward as compute does.
    """
    of_parts = _seconds_of_parts(job, s)
    stages = (
        _through(job, partition.stage(job, s, index), of_parts)
        for index in range(int(s.pipeline_parallel_size))
    )
    return tuple(_stretched(one) for one in stages)


def _stretched(one: MicroBatch) -> StageSeconds:
    stretch = float(one.seconds) / max(float(one.forward + one.backward), 1e-12)
    return StageSeconds(
        forward=float(one.forward) * stretch,
        backward=float(one.backward) * stretch,
        weight=float(one.of(Aside.PUT_OFF)) * stretch,
    )
