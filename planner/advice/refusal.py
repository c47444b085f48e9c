"""Why there is no plan: no layout, or none that fits; with what would help."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from planner.core.errors import InvalidInputError, NothingFitsError, Remedy, WayOut
from planner.core.units import format_bytes
from planner.domain.breach import Breach
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import Job
from planner.domain.strategy import Layout, Offload, divisors, num_rows, rows
from planner.memory.host import estimate_host_memory
from planner.search.candidate import Candidate
from planner.search.largest_that_fits import (
    SHORTEST_SEQUENCE,
    lighter,
    remedies,
    shortened,
    smallest_bytes,
)
from planner.search.limits import violations
from planner.search.limits.base import Limit
from planner.search.limits.sizes import nearest_splits, sizes_do_not_multiply
from planner.search.pinned_fields import AtLeast, PinnedFields, filled, simplest_layout
from planner.search.search import SearchResult, search
from planner.search.space import strategies

_NOTABLE = 0.05
"""Of the memory that a job needs: what saves less without making it fit is not worth a line."""
_JOBS = {
    "finetune": "fine-tuning of all weights",
    "pretrain": "pre-training",
    "dpo": "DPO of all weights",
    "orpo": "ORPO of all weights",
    "simpo": "SimPO of all weights",
    "reward": "a reward model of all weights",
    "grpo": "GRPO of all weights",
    None: "training of all weights",
}


def unsplit(batch: int, world_size: int, micro_batch: int = 1) -> InvalidInputError:
    """Return what says that a batch does not divide, with the nearest batches and micro-batches that do."""
    pieces = f" in micro-batches of {micro_batch}" if micro_batch > 1 else ""
    fewer = [size for size in divisors(world_size) if size < batch < world_size]
    is_shared = fewer and micro_batch == 1
    shared = f"; or {fewer[-1]:,}, of which the GPUs share each sequence" if is_shared else ""
    return InvalidInputError(
        f"a global batch of {batch:,} does not split over {world_size:,} GPUs{pieces}",
        hint=nearest_splits(batch, world_size, micro_batch) + shared,
        field="recipe.global_batch_size",
    )


def check_batch(job: Job, s: Layout, pinned: PinnedFields) -> None:
    """Refuse a batch that only dividing the model could split, where a whole replica fits.

    It is split so where the framework's own models are divided already, and where it has fewer
    sequences than there are GPUs, in equal groups of which the GPUs must share one; but never for a
    micro-batch that was asked for.

    Args:
        job: supplies the batch and the GPUs.
        s: the best layout, which is no plain data parallelism.
        pinned: values that were asked for.

    Raises:
        InvalidInputError: with the nearest batches that do split.
    """
    batch, world_size = job.recipe.global_batch_size, job.cluster.world_size
    micro_batch = pinned.get("micro_batch_size", 1)
    is_undivided = micro_batch > 1 and not pinned.keys() & {each.field for each in DIMENSIONS}
    if is_undivided and batch % (world_size * micro_batch):
        raise unsplit(batch, world_size, micro_batch)
    changing = job.framework.capabilities.changes_model
    is_divided = not any(s.uses(each) and each.name in changing for each in DIMENSIONS)
    if not (pinned or world_size % batch == 0 or is_divided) and batch % world_size:
        raise unsplit(batch, world_size)


def no_layout(job: Job, pinned: PinnedFields) -> InvalidInputError:
    """Return what forbids the pinned fields, or the batch."""
    s = simplest_layout(job, filled(job, pinned))
    broken = violations(job, s)
    if not broken:
        named = ", ".join(f"{name}={value}" for name, value in pinned.items())
        return InvalidInputError(
            f"no layout has {named}",
            hint="leave one of them out; --why NAME=VALUE says what a value meets",
            field="strategy",
        )
    # Sizes that were left open only seem not to multiply: the simplest layout took the least of each.
    is_open = any(isinstance(value, AtLeast) for value in pinned.values())
    others = [each for each in broken if each[0].judge is not sizes_do_not_multiply]
    limit, breach = _nearest_to(pinned, others if is_open and others else broken)
    replicas = _with_replicas(job, pinned, s)
    if limit.judge is sizes_do_not_multiply and replicas:
        reason = f"no sizes of {s.family} use {job.cluster.world_size} GPUs"
        return InvalidInputError(reason, hint=replicas, field="strategy")
    advice = [each for each in (breach.advice, replicas) if each]
    return InvalidInputError(
        f"{breach.reason} ({limit.code})", hint="; or ".join(advice), field=breach.field
    )


def _nearest_to(
    pinned: PinnedFields, broken: Sequence[tuple[Limit, Breach]]
) -> tuple[Limit, Breach]:
    """Return what to say of several limits: the first, unless the framework cannot do what was asked for at all."""
    first = broken[0]
    if _field(first) in pinned:
        return first
    unable = (each for each in broken if each[0].is_ability and _field(each) in pinned)
    return next(unable, first)


def _field(broken: tuple[Limit, Breach]) -> str:
    return broken[1].field.rpartition(".")[2]


def _with_replicas(job: Job, pinned: PinnedFields, s: Layout) -> str:
    shared = {**pinned, "data_parallel_size": AtLeast(2)}
    is_alone = pinned.get("data_parallel_size") == 1
    if not is_alone or not num_rows(strategies(job, shared)):
        return ""
    return f"--strategy {s.family}+ddp has data parallelism divide the rest of the GPUs"


def nothing_fits(
    result: SearchResult,
    pinned: PinnedFields | None,
    chosen: Callable[[Job], Candidate | None],
    fits_lighter: Callable[[Job], bool] = lambda _: False,
) -> NothingFitsError:
    """Return by how much the smallest layout is too large, and what would fit.

    Args:
        result: every legal layout, estimated.
        pinned: values that every row has.
        chosen: what would be proposed of a job; None where nothing fits.
        fits_lighter: as for `remedies`.
    """
    on_gpu = np.flatnonzero(np.logical_not(result.table.offloads_optimizer))
    job, row = result.job, result.smallest(on_gpu if len(on_gpu) else np.arange(result.size))
    needed, usable, place = result.reserved_bytes[row], job.usable_bytes, "per GPU"
    if needed <= usable:
        row, needed, usable, place = *_least_of_host(result), "of each node's memory"
    strategy = result.table.at(row)
    found = remedies(job, pinned, chosen, fits_lighter)
    is_of_strategy = any(each.field == "strategy" for each in found)
    tried = () if is_of_strategy else _tried(job, pinned, found, (float(needed), float(usable)))
    found += _offload(result, pinned or {})
    return NothingFitsError(
        f"nothing fits: the smallest layout ({strategy.family}, micro-batch"
        f" {strategy.micro_batch_size}, recompute {strategy.recompute}) needs"
        f" {format_bytes(needed)} of {format_bytes(usable)} {place},"
        f" {format_bytes(needed - usable)} too much",
        hint="; ".join(each.sentence for each in found) or "use a smaller model or larger GPUs",
        field="cluster",
        remedies=tuple(found),
        ways_out=tried,
    )


def _tried(
    job: Job, pinned: PinnedFields | None, found: Sequence[Remedy], asked: tuple[float, float]
) -> tuple[WayOut, ...]:
    """Return the job as it was asked, of those bytes needed and usable, and what was tried and does not fit either."""
    needed, usable = asked
    helpful = {(each.field, each.value) for each in found}
    changes = [
        (name, flag, f"recipe.{field}", value, changed)
        for name, flag, (field, value), changed in lighter(job)
    ]
    if job.recipe.sequence_length > SHORTEST_SEQUENCE and not job.model.reads_images:
        short = shortened(SHORTEST_SEQUENCE)
        changed = replace(job, recipe=replace(job.recipe, sequence_length=SHORTEST_SEQUENCE))
        is_one_long_enough = any(each.field == short.field for each in found)
        others = [(short.name, short.flag, short.field, short.value, changed)]
        changes += [] if is_one_long_enough else others
    failed = (
        _way((name, flag, field, value), smallest_bytes(changed, pinned), job.usable_bytes)
        for name, flag, field, value, changed in changes
        if (field, value) not in helpful
    )
    most = (1 - _NOTABLE) * needed
    first = _way((_training(job), "", "", ""), needed, usable)
    return (first, *(each for each in failed if 0 < each.reserved_bytes <= most))


def _training(job: Job) -> str:
    """Return what is trained, in a few words."""
    lora = job.recipe.lora
    if lora is not None:
        return f"{'QLoRA' if lora.is_quantised else 'LoRA'} of rank {lora.rank}"
    return _JOBS[job.recipe.job]


def _way(change: tuple[str, str, str, str], needed: float, usable: float) -> WayOut:
    name, flag, field, value = change
    return WayOut(
        name=name,
        flag=flag,
        field=field,
        value=value,
        fits=False,
        reserved_bytes=round(needed),
        usable_bytes=round(usable),
    )


def _least_of_host(result: SearchResult) -> tuple[int, float, float]:
    """Return the row that takes the least of a node's memory of those that fit on the GPUs, and that."""
    on_gpu = np.flatnonzero(result.reserved_bytes <= result.job.usable_bytes)
    host = estimate_host_memory(result.job, rows(result.table, on_gpu))
    needed = np.broadcast_to(host.training_bytes, len(on_gpu))
    row = int(np.argmin(needed))
    return int(on_gpu[row]), float(needed[row]), host.available_bytes


def _offload(result: SearchResult, pinned: PinnedFields) -> list[Remedy]:
    """Return the offload that fits on the GPUs, with what it needs of a node, where nobody ruled on it.

    A family that does not name it leaves it out, so it is looked at anew; without such a wish it would have
    been chosen where the node's memory is known.
    """
    is_left_out = pinned.get("offload") == Offload.NONE
    if result.job.cluster.host_memory_bytes and not is_left_out:
        return []
    if is_left_out:
        others = {name: value for name, value in pinned.items() if name != "offload"}
        result = search(result.job, others)
    fitting = np.flatnonzero(result.fits & result.table.offloads_optimizer)
    if not len(fitting):
        return []
    needed = estimate_host_memory(result.job, rows(result.table, fitting)).training_bytes
    s = result.table.at(int(fitting[np.argmin(needed)]))
    text = (
        f"--offload {s.offload} would fit, in {format_bytes(np.min(needed))} of each node's memory"
    )
    return [
        Remedy(
            text=text,
            field="strategy.offload",
            value=str(s.offload),
            name=f"offload of {str(s.offload).replace('+', ' and ')}",
            flag=f"--offload {s.offload}",
        )
    ]
