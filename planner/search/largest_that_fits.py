"""What would fit: the largest micro-batch, the longest sequence, the fewest GPUs, the least change.

Every answer is found by estimating, never by a formula of its own.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from planner.core.errors import Remedy
from planner.core.frozen import frozen
from planner.core.term import Column
from planner.core.units import format_bytes, format_samples, format_seconds
from planner.domain.cluster import Cluster, Link
from planner.domain.job import Job, Lora
from planner.domain.optimizer import ADAMW
from planner.domain.strategy import ZERO_1, Layout, Offload, Recompute, Table, num_rows, vary
from planner.hardware.usual_network import usual_network
from planner.memory.host import fits_host
from planner.memory.ledger import estimate_memory
from planner.parallel.lora import find_lora
from planner.search.candidate import Candidate, estimate
from planner.search.pinned_fields import PinnedFields
from planner.search.space import strategies

MOST_SEQUENCES = 2**20
LONGEST_SEQUENCE = 2**24
MOST_GPUS = 4096
SHORTEST_SEQUENCE = 128
"""Tokens; shorter is no longer the same job."""

_SMALLEST: PinnedFields = {
    "micro_batch_size": 1,
    "recompute": Recompute.FULL,
    "offload": Offload.NONE,
    "synchronize_every": 1,
}
"""What layouts have in common among which the smallest is found."""


@frozen
class Change:
    """One change to a job or its layout, and what becomes of the estimate."""

    name: str
    """As a user would ask for it."""
    candidate: Candidate
    slowdown: float
    """Step time after the change over step time before, for the same sequences."""


def largest_micro_batch(job: Job, s: Layout) -> int:
    """Return the most sequences per pass that fit with this layout; 0 where not even one does."""

    def fits(sizes: Column) -> Column:
        reserved = estimate_memory(job, vary(s, micro_batch_size=sizes)).reserved_bytes
        return np.asarray(reserved) <= job.usable_bytes

    doubled = 2 ** np.arange(int(np.log2(MOST_SEQUENCES)) + 1)
    below = doubled[fits(doubled)]
    if not len(below):
        return 0
    low, high = int(below[-1]), min(MOST_SEQUENCES, 2 * int(below[-1]))
    while high - low > 1:
        # A column of 64 sizes is estimated in about the time of one.
        between = np.unique(np.linspace(low, high, 64, dtype=int))
        row = int(np.count_nonzero(fits(between))) - 1
        low, high = int(between[row]), int(between[min(row + 1, len(between) - 1)])
    return low


def longest_sequence(job: Job, s: Layout) -> int:
    """Return the most tokens per sequence that fit with this layout; 0 where not even one does.

    Learned positions bound it: a longer sequence cannot run at all. Images are as long as they are.
    """

    def fits(length: int) -> bool:
        longer = replace(job, recipe=replace(job.recipe, sequence_length=length))
        return bool(estimate_memory(longer, s).reserved_bytes <= job.usable_bytes)

    if job.model.reads_images:
        return job.recipe.sequence_length if fits(job.recipe.sequence_length) else 0
    learned = job.model.has_learned_positions
    most = job.model.max_position_embeddings if learned else LONGEST_SEQUENCE
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def fewest_gpus(job: Job, s: Layout) -> int | None:
    """Return the fewest GPUs that hold the job; None where even `MOST_GPUS` do not.

    Without model parallelism: of 1, 2, 4 ... in a node and then whole nodes, in any layout. With
    it: with this layout's model-parallel sizes, over 1, 2, 4 ... data-parallel ranks.
    """
    model_parallel = s.model_parallel_size
    if model_parallel > 1:
        return _fewest_replicas(job, s, model_parallel)
    for gpus_per_node, nodes in _cluster_sizes(job):
        if fits_somehow(with_gpus(job, gpus_per_node, nodes)):
            return gpus_per_node * nodes
    return None


def _fewest_replicas(job: Job, s: Layout, model_parallel: int) -> int | None:
    most = int(np.log2(max(1, MOST_GPUS // model_parallel)))
    ranks = 2 ** np.arange(most + 1)
    ones = np.ones_like(ranks)
    table = vary(
        s,
        data_parallel_replicate_size=ones if s.zero_stage else ranks,
        data_parallel_shard_size=ranks if s.zero_stage else ones,
    )
    fits = estimate_memory(job, table).reserved_bytes <= job.usable_bytes
    # Of truths, argmax is the first that holds.
    return int(ranks[np.argmax(fits)]) * model_parallel if np.any(fits) else None


def _cluster_sizes(job: Job) -> Iterator[tuple[int, int]]:
    size = 1
    while size < job.cluster.gpus_per_node:
        yield size, 1
        size *= 2
    nodes = 1
    while nodes * job.cluster.gpus_per_node <= MOST_GPUS:
        yield job.cluster.gpus_per_node, nodes
        nodes *= 2


def with_gpus(job: Job, gpus_per_node: int, nodes: int) -> Job:
    """Return the job on another number of the same GPUs and nodes."""
    cluster = replace(
        job.cluster,
        gpus_per_node=gpus_per_node,
        nodes=nodes,
        larger_gpus=None,
        inter_node=_network(job.cluster, gpus_per_node) if nodes > 1 else None,
    )
    return replace(job, cluster=cluster)


def _network(cluster: Cluster, gpus_per_node: int) -> Link:
    usual, _ = usual_network(cluster.gpu, gpus_per_node, cluster.instance)
    return cluster.inter_node or usual


def fits_somehow(job: Job, pinned: PinnedFields | None = None) -> bool:
    """Return whether the smallest layout of the job fits, its batch rounded up to the GPUs.

    Args:
        job: what is to be trained, on what.
        pinned: values of `Layout` fields that the layout must have.
    """
    rounded = _in_whole_rounds(job)
    table = _smallest_layouts(rounded, pinned)
    if not num_rows(table):
        return False
    fits = estimate_memory(rounded, table).reserved_bytes <= job.usable_bytes
    return bool(np.any(fits & fits_host(rounded, table)))


def smallest_bytes(job: Job, pinned: PinnedFields | None = None) -> float:
    """Return what the smallest layout reserves of each GPU; 0 where there is none. Arguments as of `fits_somehow`."""
    rounded = _in_whole_rounds(job)
    table = _smallest_layouts(rounded, pinned)
    if not num_rows(table):
        return 0.0
    return float(np.min(estimate_memory(rounded, table).reserved_bytes))


def _smallest_layouts(job: Job, pinned: PinnedFields | None) -> Table:
    return strategies(job, {**_SMALLEST, **(pinned or {})})


def _in_whole_rounds(job: Job) -> Job:
    world_size = job.cluster.world_size
    batch = -(-job.recipe.global_batch_size // world_size) * world_size
    return replace(job, recipe=replace(job.recipe, global_batch_size=batch))


def _cost(
    job: Job,
    changed: Job,
    pinned: PinnedFields | None,
    chosen: Callable[[Job], Candidate | None],
) -> str | None:
    """Return in words what adapters or a loss with offload take; None where the changed job does not fit."""
    has_other_adapters = changed.recipe.lora is not job.recipe.lora
    if not has_other_adapters and fits_somehow(changed, pinned):
        return ""
    if not has_other_adapters and changed.recipe.loss == job.recipe.loss:
        return None
    best = chosen(changed)
    return None if best is None else cost_of(changed, best)


def cost_of(job: Job, best: Candidate) -> str:
    """Return in words what the best layout of a job takes."""
    offload = str(best.strategy.offload).replace("+", " and ")
    offloaded = f" with offload of {offload}," if best.strategy.offloads_optimizer else ""
    return (
        f"{offloaded} in {format_bytes(best.memory.reserved_bytes)} of each GPU,"
        f" {format_seconds(best.step_time.step_seconds)} a step of"
        f" {format_samples(job.recipe.global_batch_size, job.sample)}"
    )


def smallest_layout(job: Job) -> Candidate:
    """Return the layout of the job that needs the least memory of the GPUs, nothing offloaded."""
    table = strategies(job, {"offload": Offload.NONE})
    reserved = estimate_memory(job, table).reserved_bytes
    return estimate(job, table.at(int(np.argmin(reserved))))


def remedies(
    job: Job,
    pinned: PinnedFields | None,
    chosen: Callable[[Job], Candidate | None],
    fits_lighter: Callable[[Job], bool] = lambda _: False,
) -> list[Remedy]:
    """Return changes that were tried and make the job fit, each on its own: the least of people's first.

    Args:
        job: what does not fit.
        pinned: values of `Layout` fields that were asked for.
        chosen: what would be proposed of a job, offload included; None where nothing fits.
        fits_lighter: whether a job fits with a loss that would be taken unasked; none would where it was asked for.
    """

    def fits(changed: Job) -> bool:
        return fits_somehow(changed, pinned) or fits_lighter(changed)

    if pinned and fits_somehow(job):
        return [Remedy(text="without the pinned strategy it fits", field="strategy", value="")]
    found = [
        _remedy(name, flag, f"recipe.{field}", value, cost)
        for name, flag, (field, value), changed in lighter(job)
        if (cost := _cost(job, changed, pinned, chosen)) is not None
    ]
    shorter = ((n, _with_recipe(job, sequence_length=n)) for n in _shorter(job))
    length = next((n for n, changed in shorter if fits(changed)), 0)
    if length:
        found.append(shortened(length))
    larger = next((each for each in _more_nodes(job) if fits(each)), None)
    if larger:
        gpus, nodes = larger.cluster.world_size, str(larger.cluster.nodes)
        found.append(_remedy(f"{gpus} GPUs", f"--nodes {nodes}", "cluster.nodes", nodes))
    if pinned and not found and remedies(job, None, lambda _: None):
        text = "without the pinned strategy it does not fit either, but more would help"
        return [Remedy(text=text, field="strategy", value="")]
    return found


def _remedy(name: str, flag: str, field: str, value: str, cost: str = "") -> Remedy:
    text = f"{name} would fit ({flag})"
    return Remedy(text=text, field=field, value=value, cost=cost, name=name, flag=flag)


def shortened(length: int) -> Remedy:
    """Return sequences of another length, in tokens, as a remedy."""
    flag, field = f"--seq-len {length}", "recipe.sequence_length"
    return _remedy(f"sequences of {length:,} tokens", flag, field, str(length))


def lighter(job: Job) -> Iterator[tuple[str, str, tuple[str, str], Job]]:
    """Yield what takes less of each parameter: its name, its flag, its field with the value, the job with it."""
    recipe = job.recipe
    if recipe.optimizer_in_backward:
        accumulates = _with_recipe(job, optimizer_in_backward=False)
        setting = ("optimizer_in_backward", "false")
        yield "a step after backward", "without --optimizer-in-backward", setting, accumulates
    for loss, changed in lighter_losses(job):
        yield f"a {loss} loss", f"--loss {loss}", ("loss", loss), changed
    for method, lora in adapters(job, Layout()):
        setting = ("method", method.lower())
        changed = replace(job, recipe=job.recipe.with_adapters(lora))
        yield f"{method} of rank {lora.rank}", f"--method {method.lower()}", setting, changed
    for name, field, value in _lighter_states(job):
        yield name, f"--{field} {value}", (field, value), _with_recipe(job, **{field: value})


def _lighter_states(job: Job) -> list[tuple[str, str, str]]:
    """Return what makes the states of all parameters smaller: its name, the recipe's field, the value."""
    found = []
    if job.recipe.optimizer in ADAMW and "adamw-8bit" in job.framework.optimizers:
        found.append(("8-bit AdamW", "optimizer", "adamw-8bit"))
    if job.recipe.precision.endswith("-mixed") and "bf16" in job.cluster.gpu.peak_flops:
        found.append(("pure bf16", "precision", "bf16"))
    return found


def lighter_losses(job: Job) -> Iterator[tuple[str, Job]]:
    """Yield the losses of the framework that never hold all logits, each with the job that has it."""
    if job.loss is None and job.model.has_token_loss:
        for loss in job.framework.capabilities.losses:
            if loss in job.framework.losses:
                yield loss, _with_recipe(job, loss=loss)


def _shorter(job: Job) -> Iterator[int]:
    length = 0 if job.model.reads_images else job.recipe.sequence_length // 2
    while length >= SHORTEST_SEQUENCE:
        yield length
        length //= 2


def _more_nodes(job: Job) -> Iterator[Job]:
    nodes = 2 * job.cluster.nodes
    while nodes * job.cluster.gpus_per_node <= MOST_GPUS:
        yield with_gpus(job, job.cluster.gpus_per_node, nodes)
        nodes *= 2


def changes_that_fit(job: Job, s: Layout) -> tuple[Change, ...]:
    """Return the single changes after which this layout fits, the one that costs least time first.

    Smaller states of two kinds are one change where neither kind is enough.
    """
    before = estimate(job, s).step_time.step_seconds

    def fitting(tried: Iterable[tuple[str, Job, Layout]]) -> Iterator[Change]:
        for name, changed, layout in tried:
            candidate = estimate(changed, layout)
            if candidate.fits:
                slowdown = float(candidate.step_time.step_seconds / before)
                yield Change(name=name, candidate=candidate, slowdown=slowdown)

    changes = list(fitting(_changes(job, s)))
    states = {name: (field, value) for name, field, value in _lighter_states(job)}
    if len(states) > 1 and not any(change.name in states for change in changes):
        both = _with_recipe(job, **dict(states.values()))
        changes += fitting([(" and ".join(states), both, s)])
    return tuple(sorted(changes, key=lambda change: change.slowdown))


def _changes(job: Job, s: Layout) -> Iterator[tuple[str, Job, Layout]]:
    for recompute in (Recompute.SELECTIVE, Recompute.FULL):
        if recompute > s.recompute:
            yield f"recompute {recompute}", job, replace(s, recompute=recompute)
    for loss, changed in lighter_losses(job):
        yield f"a {loss} loss", changed, s
    if s.micro_batch_size % 2 == 0:
        halved = replace(
            s,
            micro_batch_size=s.micro_batch_size // 2,
            gradient_accumulation_steps=2 * s.gradient_accumulation_steps,
        )
        yield f"micro-batch {halved.micro_batch_size}", job, halved
    yield from _higher_stages(job, s)
    for name, field, value in _lighter_states(job):
        yield name, _with_recipe(job, **{field: value}), s
    for method, lora in adapters(job, s):
        yield (
            f"{method} of rank {lora.rank}",
            replace(job, recipe=job.recipe.with_adapters(lora)),
            s,
        )
    if s.zero_stage >= ZERO_1 and not s.offloads_optimizer:
        for offload in map(Offload, job.framework.host_memory.offloads):
            yield f"offload {offload}", job, replace(s, offload=offload)


def adapters(job: Job, s: Layout) -> Iterator[tuple[str, Lora]]:
    """Yield the adapters that the framework would make by default, where the layout can have any."""
    is_split = s.tensor_parallel_size > 1 or s.expert_parallel_size > 1
    if job.recipe.lora is not None or is_split or not job.model.is_decoder:
        return
    for method in ("LoRA", "QLoRA"):
        if method.lower() not in job.framework.capabilities.adapter_methods:
            continue
        lora, _ = find_lora(
            method.lower(), None, job.recipe.precision, job.model, job.framework.experts
        )
        if lora is not None:
            yield method, lora


def _higher_stages(job: Job, s: Layout) -> Iterator[tuple[str, Job, Layout]]:
    ranks = s.data_parallel_size
    stages = [stage for stage in job.framework.zero_stages if stage > s.zero_stage]
    for stage in stages if ranks > 1 else []:
        sharded = replace(
            s,
            zero_stage=stage,
            data_parallel_replicate_size=1,
            data_parallel_shard_size=ranks,
        )
        yield f"ZeRO-{stage}", job, sharded


def _with_recipe(job: Job, **fields: Any) -> Job:
    return replace(job, recipe=replace(job.recipe, **fields))
