"""How a job is laid out over the GPUs: one layout, or a table of them.

Sizes multiply: replicate x shard x tensor x pipeline x context = world size, and
micro batch x accumulation steps x replicate x shard = global batch.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from functools import cache, reduce
from operator import mul, or_
from types import MappingProxyType
from typing import Any, Generic, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.core.frozen import frozen
from planner.core.remembered import remembered
from planner.core.term import Truth
from planner.domain.dimensions import DIMENSIONS, Dimension
from planner.domain.expert_ranks import folded_ranks_per_expert
from planner.domain.recompute_modules import names_of

Whole: TypeAlias = int | NDArray[np.int64]
"""A whole number, or a column of them."""

_Column: TypeAlias = NDArray[np.int64] | NDArray[np.bool_]

ZERO_1, ZERO_2, ZERO_3 = 1, 2, 3

DATA_NAMES = {0: "ddp", ZERO_1: "zero-1", ZERO_2: "zero-2", ZERO_3: "zero-3"}
"""What data parallelism is called, by ZeRO stage."""

ALL_LAYERS = 2**20
"""Of `recompute_layers`: every block, however many there are."""

STAGES = {name: stage for stage, name in DATA_NAMES.items()}


ChoiceT = TypeVar("ChoiceT", bound="Choice")


class Choice(int, Enum):
    """One of a few values: a number, counted from 0, in a table; its `value` is the contract's name."""

    def __new__(cls, name: str) -> Self:
        """Number the members in the order that they are written in."""
        member = int.__new__(cls, len(cls.__members__))
        member._value_ = name
        return member

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the contract's names, by number."""
        return _names(cls)

    @classmethod
    def numbered(cls, number: int) -> Self:
        """Return the member of a number."""
        members: tuple[Self, ...] = _members(cls)
        return members[number]

    @classmethod
    def name_of(cls, number: "Whole | Choice") -> str | NDArray[np.str_]:
        """Return the contract's name of a number, or of each in a column."""
        if isinstance(number, np.ndarray):
            return np.array(cls.names())[number]
        return cls.names()[number]


@cache
def _members(kind: type[ChoiceT]) -> tuple[ChoiceT, ...]:
    return tuple(kind)


@cache
def _names(kind: type[Choice]) -> tuple[str, ...]:
    return tuple(str(each) for each in kind)


class Recompute(Choice):
    """What backward computes again, the least first."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Offload(Choice):
    """What waits in host memory, the least first."""

    NONE = "none"
    OPTIMIZER = "optimizer"
    OPTIMIZER_AND_PARAMETERS = "optimizer+parameters"


class PipelineSchedule(Choice):
    """In which order pipeline stages work; what each means is in `planner.parallel.pipeline_schedules`."""

    NAIVE = "naive"
    GPIPE = "gpipe"
    ONE_FORWARD_ONE_BACKWARD = "1f1b"
    INTERLEAVED = "interleaved-1f1b"
    ZERO_BUBBLE_H1 = "zb-h1"
    ZERO_BUBBLE_V = "zbv"


CHOICES: Mapping[str, type[Choice]] = MappingProxyType(
    {"pipeline_schedule": PipelineSchedule, "recompute": Recompute, "offload": Offload}
)
"""The fields of a strategy that hold one of a few values."""


WholeT_co = TypeVar("WholeT_co", bound=Whole, covariant=True)
TruthT_co = TypeVar("TruthT_co", bound=Truth, covariant=True)
ScheduleT_co = TypeVar("ScheduleT_co", bound=Whole, covariant=True)
RecomputeT_co = TypeVar("RecomputeT_co", bound=Whole, covariant=True)
OffloadT_co = TypeVar("OffloadT_co", bound=Whole, covariant=True)


def _default(value: Any) -> Any:
    """Return a field's default: mypy holds it to none of the kinds of values that the field may have."""
    return value


@frozen
class LayoutFields(Generic[WholeT_co, TruthT_co, ScheduleT_co, RecomputeT_co, OffloadT_co]):
    """What makes up a layout, each as one value or as a column, and what follows from it."""

    data_parallel_replicate_size: WholeT_co = _default(1)
    data_parallel_shard_size: WholeT_co = _default(1)
    """Ranks that ZeRO divides states over."""
    tensor_parallel_size: WholeT_co = _default(1)
    sequence_parallel: TruthT_co = _default(value=False)
    pipeline_parallel_size: WholeT_co = _default(1)
    virtual_pipeline_size: WholeT_co = _default(1)
    """Chunks of layers on each pipeline rank."""
    pipeline_schedule: ScheduleT_co = _default(PipelineSchedule.ONE_FORWARD_ONE_BACKWARD)
    context_parallel_size: WholeT_co = _default(1)
    expert_parallel_size: WholeT_co = _default(1)
    expert_tensor_parallel_size: WholeT_co = _default(0)
    """Over how many ranks each expert's matrices are divided; 0 for `folded_ranks_per_expert`."""
    zero_stage: WholeT_co = _default(0)
    """0 replicas, 1 sharded optimizer states, 2 and 3 in PyTorch fully_shard without and with resharding."""
    micro_batch_size: WholeT_co = _default(1)
    """Sequences per data-parallel rank in one forward pass."""
    gradient_accumulation_steps: WholeT_co = _default(1)
    """Micro-batches of a step; with a pipeline, those that pass through it."""
    recompute: RecomputeT_co = _default(Recompute.NONE)
    recompute_layers: WholeT_co = _default(ALL_LAYERS)
    """Of each stage's blocks, how many recompute: the first ones."""
    recompute_modules: WholeT_co = _default(0)
    """What recompute="selective" repeats, see `recompute_modules.number_of`; 0 for the framework's own choice."""
    activation_offload_layers: WholeT_co = _default(0)
    """Of each stage's blocks, how many keep what backward needs in host memory: the first ones."""
    offload: OffloadT_co = _default(Offload.NONE)
    synchronize_every: WholeT_co = _default(1)
    """Optimizer steps between averages of the parameters; 1 averages gradients every step."""

    @property
    def data_parallel_size(self) -> WholeT_co:
        """Return the ranks that see different data."""
        replicas: Any = self.data_parallel_replicate_size
        ranks: WholeT_co = replicas * self.data_parallel_shard_size
        return ranks

    @property
    def model_parallel_size(self) -> WholeT_co:
        """Return the ranks that share one replica of the model and its sequences."""
        sizes: Any = (self.size(each) for each in DIMENSIONS if not each.is_of_data)
        ranks: WholeT_co = reduce(mul, sizes)
        return ranks

    @property
    def ranks_per_expert(self) -> Whole:
        """Return over how many ranks each expert's matrices are divided: as given, else as folding leaves them."""
        return _ranks_per_expert(self)

    @property
    def shards_optimizer(self) -> Truth:
        """Return whether each rank steps its own share of the parameters: ZeRO-1 and up."""
        return self.zero_stage >= ZERO_1

    @property
    def shards_gradients(self) -> Truth:
        """Return whether each rank keeps its own share of the gradients: ZeRO-2 and 3.

        Both are FSDP in PyTorch, which shards the parameters too; whether a framework does at a stage says
        `planner.parallel.activations.gathers_parameters`.
        """
        return self.zero_stage >= ZERO_2

    @property
    def gathers_twice(self) -> Truth:
        """Return whether backward gathers the parameters again: ZeRO-3."""
        return self.zero_stage == ZERO_3

    @property
    def offloads_optimizer(self) -> Truth:
        """Return whether the optimizer's states, and its step, are in host memory."""
        return self.offload >= Offload.OPTIMIZER

    @property
    def offloads_parameters(self) -> Truth:
        """Return whether a rank's parameters wait in host memory until they are gathered."""
        return self.offload == Offload.OPTIMIZER_AND_PARAMETERS

    @property
    def is_hybrid(self) -> Truth:
        """Return whether shards of parameters are replicated: HSDP."""
        return self.shards_gradients & (self.data_parallel_replicate_size > 1)

    @property
    def is_local(self) -> Truth:
        """Return whether replicas drift apart between averages: local SGD."""
        return self.synchronize_every > 1

    def size(self, dimension: Dimension) -> WholeT_co:
        """Return over how many ranks a dimension divides the model."""
        found: WholeT_co = getattr(self, dimension.field)
        return found

    def uses(self, dimension: Dimension) -> Truth:
        """Return whether a dimension divides the model."""
        return self.size(dimension) > 1

    @property
    def divides_model(self) -> Truth:
        """Return whether any dimension divides the model."""
        return _divides_model(self)


Strategy: TypeAlias = LayoutFields[Whole, Truth, Whole, Whole, Whole]
"""What a formula reads: the numbers of one `Layout`, or the columns of a `Table` of them."""

FIELDS = tuple(field.name for field in fields(LayoutFields))
"""The names of what makes up a layout."""


@frozen
class Layout(LayoutFields[int, bool, PipelineSchedule, Recompute, Offload]):
    """One layout."""

    @property
    def family(self) -> str:
        """Return the name of the layout's family, such as ddp, hsdp or tp+pp+zero-1."""
        names = [each.short_name for each in DIMENSIONS if self.uses(each)]
        data = "hsdp" if self.is_hybrid else DATA_NAMES[self.zero_stage]
        data = "local-sgd" if self.is_local else data
        if not names or self.data_parallel_size > 1 or self.zero_stage:
            names.append(data)
        if self.offloads_optimizer:
            names.append("offload")
        return "+".join(names)

    def contract(self) -> dict[str, int | str | list[str] | None]:
        """Return the layout as the contract writes it: its fields, with the names of choices."""
        values = {name: getattr(self, name) for name in FIELDS}
        if self.recompute_layers >= ALL_LAYERS:
            values["recompute_layers"] = None
        values["expert_tensor_parallel_size"] = self.expert_tensor_parallel_size or None
        values["recompute_modules"] = list(names_of(self.recompute_modules))
        return values | {name: str(values[name]) for name in CHOICES}


_Wholes: TypeAlias = NDArray[np.int64]


@frozen
class Table(LayoutFields[_Wholes, NDArray[np.bool_], _Wholes, _Wholes, _Wholes]):
    """Layouts, a row each: columns of equal length, choices by their numbers."""

    def at(self, row: int) -> Layout:
        """Return one row."""
        values = {name: getattr(self, name).item(row) for name in FIELDS}
        chosen = {name: kind.numbered(values[name]) for name, kind in CHOICES.items()}
        return Layout(**values | chosen)


def vary(layout: Strategy, **columns: _Column) -> Table:
    """Return a table of one layout with some fields varied, row by row."""
    length = len(next(iter(columns.values())))
    values = {name: np.full(length, getattr(layout, name)) for name in FIELDS}
    return Table(**values | columns)


def tabulate(layouts: Sequence[Strategy]) -> Table:
    """Return the table of some layouts, a row each."""
    return Table(
        **{name: np.array([getattr(layout, name) for layout in layouts]) for name in FIELDS}
    )


@remembered(2)
def _divides_model(s: Strategy) -> Truth:
    return reduce(or_, (s.uses(each) for each in DIMENSIONS))


@remembered(2)
def _ranks_per_expert(s: Strategy) -> Whole:
    others = s.context_parallel_size * s.data_parallel_size
    folded = folded_ranks_per_expert(s.tensor_parallel_size, others, s.expert_parallel_size)
    given = s.expert_tensor_parallel_size
    found: Whole = np.where(np.equal(given, 0), folded, given) if np.any(given) else folded
    return found


def nearest_multiples(number: int, of: int) -> str:
    """Return a hint with the nearest multiples below and above a number that is none."""
    below = number // of * of
    above = below + of
    near = f"{below:,} or {above:,}" if below else f"{above:,}"
    return f"it must be a multiple of {of:,}; nearest: {near}"


def divisors(number: int) -> list[int]:
    """Return the divisors of a positive number, ascending."""
    small = [size for size in range(1, math.isqrt(number) + 1) if number % size == 0]
    return sorted({*small, *(number // size for size in small)})


def num_rows(table: Table) -> int:
    """Return how many layouts the table holds."""
    return len(table.zero_stage)


def rows(table: Table, which: _Column) -> Table:
    """Return the rows of a table at these indices, or where a mask holds."""
    return Table(**{name: getattr(table, name)[which] for name in FIELDS})


def first_of_alike(table: Table, names: Iterable[str]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first row of each group alike in some fields, and the group of every row."""
    # Digits of one number: numpy sorts numbers far quicker than rows of several.
    key = np.zeros(num_rows(table), dtype=np.int64)
    for name in names:
        column = getattr(table, name)
        key = key * (int(column.max(initial=0)) + 1) + column
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    return first, which


def join(tables: Iterable[Table]) -> Table:
    """Return one table with the rows of several."""
    parts = list(tables)
    return Table(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in FIELDS}
    )


def family_keys(table: Table) -> NDArray[np.int64]:
    """Return a number per row that is the same for layouts of the same `Layout.family`."""
    flags = [table.uses(each) for each in DIMENSIONS]
    is_replicated = (table.data_parallel_size > 1) & table.divides_model
    flags += [is_replicated & (table.zero_stage == 0), table.is_hybrid, table.is_local]
    flags += [table.offloads_optimizer]
    # HSDP is one family, whether backward gathers again or not.
    key = np.where(table.is_hybrid, ZERO_3, table.zero_stage)
    for flag in flags:
        key = 2 * key + np.where(flag, 1, 0)
    return key
