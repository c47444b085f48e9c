"""Every legal layout of a job, as a table: the search space.

The table is built from the outside in: sizes that multiply to the number of GPUs, then ZeRO stage and
shards, micro-batches, schedules, and last what each of those can be combined with. What the limits
forbid is taken out, so no row is left that could not be proposed.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.core.errors import InvalidInputError
from planner.core.term import Column
from planner.domain.job import Job
from planner.domain.strategy import (
    FIELDS,
    ZERO_1,
    ZERO_2,
    Layout,
    Offload,
    PipelineSchedule,
    Recompute,
    Table,
    divisors,
    join,
    num_rows,
    rows,
    vary,
)
from planner.parallel.pipeline_schedules import SCHEDULES
from planner.search.limits import legal
from planner.search.limits.customs import TILE_TOKENS, most_zero_with_pipeline
from planner.search.local_sgd import INTERVALS
from planner.search.pinned_fields import AtLeast, PinnedFields, holds

MOST_BASES = 2**17
"""Near a million rows: some seconds, and less than a gigabyte."""
_CHUNK = 1024
"""Bases of a table, each of which makes up to a dozen rows."""

_HELD = (
    "recompute_layers",
    "recompute_modules",
    "activation_offload_layers",
)
"""Fields that have a value of their own only where they are asked for."""

_Rows: TypeAlias = NDArray[np.intp]
"""Indices of a table's rows."""
_FieldOption: TypeAlias = tuple[int, _Rows]
"""A value that a field can have, and the rows that can have it."""


class _Base(NamedTuple):
    """The fields of a row that depend on each other."""

    data_parallel_replicate_size: int
    data_parallel_shard_size: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    virtual_pipeline_size: int
    pipeline_schedule: int
    context_parallel_size: int
    expert_parallel_size: int
    zero_stage: int
    micro_batch_size: int
    gradient_accumulation_steps: int


def strategies(job: Job, pinned: PinnedFields | None = None) -> Table:
    """Return the table of every legal layout; the limits are in `planner.search.limits`.

    Args:
        job: supplies the GPUs, the global batch, the model's sizes and what the framework can do.
        pinned: values that every returned row must have; it may name what is else left out.
    """
    return join(tables(job, pinned))


def tables(job: Job, pinned: PinnedFields | None = None) -> Iterator[Table]:
    """Yield the rows of `strategies` in tables of a size that caches like; one at least.

    Raises:
        InvalidInputError: there are more than a search should take memory and time for.
    """
    pinned = pinned or {}
    bases = list(islice(_bases(job, pinned), MOST_BASES + 1))
    if len(bases) > MOST_BASES:
        raise InvalidInputError(
            "GPUs, global batch and model divide in too many ways to look at all of them",
            hint="hold a size fixed, such as --micro-batch-size 1, --tp 8 or --ep 8",
            field="strategy",
        )
    for start in range(0, max(1, len(bases)), _CHUNK):
        table = _crossed(job, bases[start : start + _CHUNK], pinned)
        is_kept = legal(job, table)
        for name, value in pinned.items():
            is_kept &= holds(getattr(table, name), value)
        yield rows(table, is_kept)


def _bases(job: Job, pinned: PinnedFields) -> Iterator[_Base]:
    schedules = map(PipelineSchedule, job.framework.capabilities.pipeline_schedules)
    known = [schedule for schedule in schedules if not SCHEDULES[schedule].is_dominated]
    able = _choices(pinned, "pipeline_schedule", known)
    for tensor, pipeline, context, ranks in _degrees(job, pinned):
        experts, batches = (
            _experts(job, pinned, ranks * context, tensor),
            _batches(job, pinned, ranks),
        )
        in_rounds, uneven = (
            list(_schedules(job, able, pipeline, fills_rounds=fills)) for fills in (True, False)
        )
        for zero_stage, shard in _shards(job, pinned, ranks, context, pipeline):
            for expert in experts:
                for micro_batch, steps in batches:
                    for schedule, virtual in uneven if steps % pipeline else in_rounds:
                        yield _Base(
                            ranks // shard,
                            shard,
                            tensor,
                            pipeline,
                            virtual,
                            schedule,
                            context,
                            expert,
                            zero_stage,
                            micro_batch,
                            steps,
                        )


def _degrees(job: Job, pinned: PinnedFields) -> Iterator[tuple[int, int, int, int]]:
    """Yield tensor, pipeline and context parallel sizes, and the data-parallel ranks they leave."""
    world_size, batch = job.cluster.world_size, job.recipe.global_batch_size
    capabilities = job.framework.capabilities
    is_divisible = job.model.is_decoder
    most = job.cluster.joined_gpus if is_divisible and capabilities.tensor_parallel else 1
    for tensor in _choices(pinned, "tensor_parallel_size", divisors(world_size), most):
        rest = _quotient(world_size, tensor)
        most = job.model.num_blocks if is_divisible and capabilities.pipeline_schedules else 1
        for pipeline in _choices(pinned, "pipeline_parallel_size", divisors(rest), most):
            rest = _quotient(world_size, tensor * pipeline)
            longest = max(1, job.recipe.sequence_length // (2 * TILE_TOKENS))
            most = longest if is_divisible and capabilities.context_parallel else 1
            for context in _choices(pinned, "context_parallel_size", divisors(rest), most):
                ranks = _quotient(world_size, tensor * pipeline * context)
                is_wished = holds(ranks, pinned.get("data_parallel_size", ranks))
                if ranks and batch % ranks == 0 and is_wished:
                    yield tensor, pipeline, context, ranks


def _shards(
    job: Job, pinned: PinnedFields, ranks: int, context: int, pipeline: int
) -> Iterator[tuple[int, int]]:
    for stage in _choices(pinned, "zero_stage", job.framework.zero_stages):
        if pipeline > 1 and stage > most_zero_with_pipeline(job) and "zero_stage" not in pinned:
            continue
        if stage == 0:
            yield stage, 1
        elif ranks * context > 1 or "zero_stage" in pinned or _may_offload(job, pinned):
            is_hybrid = stage >= ZERO_2 and job.framework.capabilities.hybrid_shard
            sizes = [size for size in divisors(ranks) if size > 1] if is_hybrid else [ranks]
            is_pinned = (
                "data_parallel_shard_size" in pinned or "data_parallel_replicate_size" in pinned
            )
            yield from (
                (stage, size) for size in (divisors(ranks) if is_pinned else sizes or [ranks])
            )


def _may_offload(job: Job, pinned: PinnedFields) -> bool:
    is_kept = pinned.get("offload") == Offload.NONE
    return bool(job.framework.host_memory.offloads) and not is_kept


def _experts(job: Job, pinned: PinnedFields, ranks: int, tensor: int) -> Sequence[int]:
    """Return the sizes over which a layer's experts are dealt: over all ranks too, where that folds tensors in."""
    counts = [layer.num_experts for part in job.model.blocks for layer in part.linears]
    capabilities = job.framework.capabilities
    is_able = capabilities.expert_parallel and (
        job.recipe.lora is None or "expert" in capabilities.adapters_with
    )
    most = ranks * tensor if capabilities.folds_experts else ranks
    sizes = divisors(math.gcd(max(counts, default=1), most)) if is_able else [1]
    return _choices(pinned, "expert_parallel_size", sizes)


def _batches(job: Job, pinned: PinnedFields, ranks: int) -> list[tuple[int, int]]:
    per_rank = job.recipe.global_batch_size // ranks
    return [
        (micro_batch, per_rank // micro_batch)
        for micro_batch in _choices(pinned, "micro_batch_size", divisors(per_rank))
        if per_rank % micro_batch == 0
    ]


def _schedules(
    job: Job, able: Sequence[int], pipeline: int, *, fills_rounds: bool
) -> Iterator[tuple[int, int]]:
    """Yield the schedules, each with the numbers of chunks that stages and steps let it run.

    Args:
        job: supplies the layers.
        able: schedules that may be chosen.
        pipeline: stages.
        fills_rounds: whether they divide the steps.
    """
    if pipeline == 1:
        yield PipelineSchedule.ONE_FORWARD_ONE_BACKWARD, 1
        return
    for schedule in able:
        record = SCHEDULES[PipelineSchedule.numbered(schedule)]
        chunks = [record.chunks.start]
        if record.is_grouped:
            layers = -(-job.model.num_blocks // pipeline)
            chunks = divisors(layers)[1:] if fills_rounds else []
        for virtual in chunks:
            if virtual == 1 or job.framework.capabilities.virtual_stages:
                yield schedule, virtual


def _crossed(job: Job, bases: list[_Base], pinned: PinnedFields) -> Table:
    columns = np.array(bases, dtype=np.int64).reshape(len(bases), len(_Base._fields)).T
    held = {name: np.full(len(bases), pinned[name]) for name in _HELD if name in pinned}
    base = vary(Layout(), **held, **dict(zip(_Base._fields, columns, strict=True)))
    everywhere = np.arange(len(bases))
    axes: dict[str, list[_FieldOption]] = {
        "sequence_parallel": _sequence_parallel(job, base),
        "recompute": [
            (Recompute(name), everywhere) for name in job.framework.capabilities.recompute
        ],
        "offload": [(Offload.NONE, _on_gpu(base, pinned)), *_offloads(job, base)],
        "synchronize_every": _local_sgd(job, base),
        "expert_tensor_parallel_size": _whole_experts(job, base),
    }
    chosen = everywhere
    values: dict[str, Column] = {}
    for name, known in axes.items():
        options = known
        if name in pinned:
            options = _pinned_options(pinned[name], known, everywhere)
        chosen, values = _product(chosen, values, name, options, len(bases))
    return Table(**{name: getattr(base, name)[chosen] for name in FIELDS} | values)


def _pinned_options(
    pinned: int, known: list[_FieldOption], everywhere: _Rows
) -> list[_FieldOption]:
    if not isinstance(pinned, AtLeast):
        return [(pinned, everywhere)]
    return [(value, able) for value, able in known if value >= pinned]


def _product(
    chosen: _Rows,
    values: dict[str, Column],
    name: str,
    options: Sequence[_FieldOption],
    count: int,
) -> tuple[_Rows, dict[str, Column]]:
    parts, lengths = [], []
    for _, able in options:
        can = np.zeros(count, dtype=bool)
        can[able] = True
        parts.append(np.flatnonzero(can[chosen]))
        lengths.append(len(parts[-1]))
    which = np.concatenate(parts)
    column = np.repeat(np.array([value for value, _ in options]), lengths)
    return chosen[which], {**{key: taken[which] for key, taken in values.items()}, name: column}


def _sequence_parallel(job: Job, table: Table) -> list[_FieldOption]:
    everywhere = np.arange(num_rows(table))
    is_split = np.flatnonzero(table.tensor_parallel_size > 1)
    is_able = job.framework.capabilities.sequence_parallel
    return [(False, everywhere), *([(True, is_split)] if is_able else [])]


def _on_gpu(table: Table, pinned: PinnedFields) -> _Rows:
    """Return where nothing need be offloaded: shards of one rank are whole, and only offload wants them."""
    is_shared = table.data_parallel_size * table.context_parallel_size > 1
    return np.flatnonzero(is_shared | (table.zero_stage == 0) | ("zero_stage" in pinned))


def _offloads(job: Job, table: Table) -> list[_FieldOption]:
    return [
        (
            offload,
            np.flatnonzero(
                table.zero_stage
                >= (
                    ZERO_1
                    if offload == Offload.OPTIMIZER
                    else job.framework.sharding.parameters_sharded_from
                )
            ),
        )
        for offload in map(Offload, job.framework.host_memory.offloads)
    ]


def _whole_experts(job: Job, table: Table) -> list[_FieldOption]:
    """Return that experts are cut as dealing them leaves, or not at all where all else is."""
    is_able = job.model.has_experts and job.framework.capabilities.folds_experts
    is_cut = (table.tensor_parallel_size > 1) & (table.expert_parallel_size > 1)
    return [(0, np.arange(num_rows(table))), *([(1, np.flatnonzero(is_cut))] if is_able else [])]


def _local_sgd(job: Job, table: Table) -> list[_FieldOption]:
    everywhere = np.arange(num_rows(table))
    is_undivided = (table.model_parallel_size == 1) & (table.expert_parallel_size == 1)
    is_plain = (table.zero_stage == 0) & is_undivided
    alone = np.flatnonzero(is_plain & (table.data_parallel_size > 1))
    is_able = job.framework.capabilities.local_sgd
    intervals = INTERVALS if is_able else ()
    return [(1, everywhere), *((interval, alone) for interval in intervals)]


def _choices(
    pinned: PinnedFields, name: str, known: Sequence[int], most: int | None = None
) -> Sequence[int]:
    least = pinned.get(name, 0)
    if name in pinned and not isinstance(least, AtLeast):
        return [least]
    return [value for value in known if value >= least and (most is None or value <= most)]


def _quotient(total: int, size: int) -> int:
    return total // size if total % size == 0 else 0
