"""Which share of the model a rank holds: its pipeline stage, its tensor and expert shards.

Notation: p pipeline stages; t, e, c tensor, expert and context parallel sizes; N data-parallel
shards; m micro-batches of a step; v virtual stages per rank.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby

import numpy as np

from planner.core.frozen import frozen
from planner.core.remembered import remembered
from planner.core.term import Amount, Column
from planner.domain.job import Job
from planner.domain.model import Linear, Model, Part
from planner.domain.strategy import ALL_LAYERS, Strategy, Whole
from planner.parallel.pipeline_schedules import in_flight, last_stage, splits_backward, waiting

_ENDS = 2
"""Stages of a pipeline that do not both receive hidden states and gradients."""
_MOST_KEPT = 1024
"""Sizes of pipelines, of all models: a search asks for some tens, and a service is asked for any model."""


@frozen
class Stage:
    """One pipeline stage of a layout, or of every layout of a table."""

    index: Amount
    blocks: tuple[Amount, ...]
    """How many of each kind of trunk layer (`Model.blocks`) it runs."""
    is_first: Amount
    """1 where it holds the embeddings, else 0."""
    is_last: Amount
    """1 where it holds the head, else 0."""
    in_flight: Amount
    """Micro-batches whose activations the stage holds at its peak."""
    waiting: Amount
    """Of them, those whose weight gradients are put off, when a backward has just ended."""

    @property
    def num_blocks(self) -> Amount:
        """Return the trunk layers of all kinds."""
        return sum(self.blocks)


def stage(job: Job, s: Strategy, index: Amount) -> Stage:
    """Return the stage of that index, which may be a column."""
    size, trunk = s.pipeline_parallel_size, _trunk(job)

    def blocks(kind: int) -> Amount:
        return _lookup(size, index, lambda p: _blocks_of_kind(trunk, p)[kind])

    return Stage(
        index=index,
        blocks=tuple(blocks(kind) for kind in range(len(trunk.kinds))),
        is_first=np.where(index == 0, 1.0, 0.0),
        is_last=np.where(index == last_stage(s), 1.0, 0.0),
        in_flight=in_flight(s, index),
        waiting=waiting(s, index),
    )


@remembered(2)
def recomputed_share(job: Job, s: Strategy, num_blocks: Amount | None = None) -> Amount:
    """Return which share of a stage's blocks recompute, where any do.

        share = min(1, recompute_layers / blocks)

    Args:
        job: the model.
        s: a layout or a table.
        num_blocks: of the stage; None for an even share of the model's.
    """
    if np.all(np.asarray(s.recompute_layers) >= ALL_LAYERS):
        return 1.0
    mean = job.model.num_blocks / s.pipeline_parallel_size
    blocks = np.maximum(1.0, mean if num_blocks is None else num_blocks)
    share: Amount = np.minimum(1.0, s.recompute_layers / blocks)
    return share


def layers_per_stage(job: Job, size: int) -> tuple[int, ...]:
    """Return how many trunk layers each stage of a pipeline of that size runs."""
    return tuple(np.diff(_boundaries(_trunk(job), size)).tolist())


def heaviest_stages(job: Job, s: Strategy) -> tuple[Stage, ...]:
    """Return the stages among which the one with the largest peak is found."""
    return tuple(stage(job, s, index) for index in heaviest_indices(job, s))


def heaviest_indices(job: Job, s: Strategy) -> tuple[Amount, ...]:
    """Return the indices of the stages among which the one with the largest peak is found; some perhaps twice.

    The first holds the embeddings and the most micro-batches, the last the head. Between them a
    stage counts where no earlier one runs as many layers of every kind: that one would have at
    least as many micro-batches in flight. Where stages keep a buffer for every micro-batch, the second has as many
    again as the first; where weight gradients are put off, the stage before the last has the most of theirs.
    """
    size, trunk = s.pipeline_parallel_size, _trunk(job)
    found = {p: _candidates(trunk, p) for p in _distinct(size)}

    def candidate(k: int) -> Amount:
        """Return the k-th of each size; the first stage where it has fewer."""
        return _lookup(size, 0 * size, lambda p: found[p][k : k + 1] or (0,))

    rest = range(1, max((len(indices) for indices in found.values()), default=1))
    indices = (0 * size, *map(candidate, rest))
    if job.framework.pipeline.keeps_buffers and np.any(np.asarray(size) > _ENDS):
        indices = (*indices, np.where(np.asarray(size) > _ENDS, 1, 0))
    puts_off = splits_backward(s)
    if not np.any(puts_off):
        return indices
    return (*indices, np.where(puts_off, np.maximum(size - 2, 0), 0))


@remembered(16)
def rank_parameters(part: Part, s: Strategy) -> tuple[Amount, Amount]:
    """Return the parameters of one occurrence that a rank holds: dense ones, experts'.

        dense = sum(parameters / min(t, most_splits));  experts = the same / e, of t the ranks per expert

    Leaves out: biases of row-parallel layers, which every rank holds whole; vocabulary padding.
    """
    split = s.tensor_parallel_size
    dense, experts = _split_sums(part, s, lambda layer: layer.parameters)
    tables = sum(
        size / (split if name in part.split_tables else 1) for name, size in part.tables.items()
    )
    return dense + tables + sum(part.vectors.values()), experts / s.expert_parallel_size


def rank_weights(part: Part, s: Strategy) -> Amount:
    """Return the matmul weights of one occurrence that a rank multiplies with, tied ones too."""
    dense, experts = _split_sums(part, s, lambda layer: layer.weights)
    return dense + experts / s.expert_parallel_size


def _split_sums(part: Part, s: Strategy, amount: Callable[[Linear], int]) -> tuple[Amount, ...]:
    sums: list[Amount] = []
    for is_routed in (False, True):
        by_splits: dict[int, int] = {}
        for layer in part.linears:
            if (layer.num_experts > 1) == is_routed:
                splits = layer.most_splits
                by_splits[splits] = by_splits.get(splits, 0) + amount(layer)
        if by_splits:
            split = s.ranks_per_expert if is_routed else s.tensor_parallel_size
            cut = [whole / np.minimum(split, splits) for splits, whole in by_splits.items()]
            sums.append(sum(cut, start=0.0))
        else:
            sums.append(0.0)
    return tuple(sums)


@remembered(8)
def stage_parameters(job: Job, s: Strategy, stage: Stage) -> tuple[Amount, Amount]:
    """Return the parameters of a stage that a rank holds, before ZeRO: dense ones, experts'.

    A head tied to the embeddings is a tensor of its own where the two are on different stages.
    """
    pairs = [(count, rank_parameters(part, s)) for part, count in occurrences(job.model, stage)]
    dense = sum(count * one for count, (one, _) in pairs)
    experts = sum(count * one for count, (_, one) in pairs)
    return dense + stage.is_last * (1 - stage.is_first) * tied_parameters(job, s), experts


def tied_parameters(job: Job, s: Strategy) -> Amount:
    """Return the parameters of a rank's part of a head that is tied to the embeddings; 0 without one."""
    return sum(
        layer.weights / np.minimum(s.tensor_parallel_size, layer.most_splits)
        for part in job.model.others
        for layer in part.linears
        if layer.is_tied
    )


def occurrences(model: Model, stage: Stage) -> list[tuple[Part, Amount]]:
    """Return every part of the model and how often the stage runs it."""
    outer = [
        (part, part.count * (stage.is_first if part in before_blocks(model) else stage.is_last))
        for part in model.others
    ]
    return [*zip(model.blocks, stage.blocks, strict=True), *outer]


def before_blocks(model: Model) -> tuple[Part, ...]:
    """Return the parts outside the trunk that run before it: the embeddings."""
    first = next((i for i, part in enumerate(model.parts) if part.is_block), 0)
    return model.parts[:first]


def dense_shards(s: Strategy) -> Whole:
    """Return over how many ranks ZeRO divides what is not an expert: N * c."""
    return s.data_parallel_shard_size * s.context_parallel_size


def expert_shards(s: Strategy) -> Amount:
    """Return over how many ranks ZeRO divides an expert: those that hold the same one.

    N * c * t / (e * ranks that share an expert)
    """
    holders = s.expert_parallel_size * s.ranks_per_expert
    return np.maximum(1, dense_shards(s) * s.tensor_parallel_size / holders)


@frozen
class _Trunk:
    """What decides how layers are dealt to stages."""

    kinds: tuple[tuple[int, int, int], ...]
    """Count, parameters and matmul weights of each kind of layer."""
    head_weights: int
    balance: str
    dealt: tuple[int, ...]
    """The layers of each stage in turn, chunk by chunk, that a request gives; empty without."""


@remembered(2)
def _trunk(job: Job) -> _Trunk:
    model = job.model
    return _Trunk(
        kinds=tuple((part.count, part.parameters, part.linear_weights) for part in model.blocks),
        head_weights=sum(part.count * part.linear_weights for part in model.others),
        balance=job.framework.pipeline.stage_balance,
        dealt=job.pipeline_layout,
    )


def _distinct(size: Whole) -> tuple[int, ...]:
    if not isinstance(size, np.ndarray):
        return (int(size),)
    return tuple(int(p) for p in np.flatnonzero(np.bincount(size.reshape(-1))))


def _lookup(size: Whole, index: Amount, of: Callable[[int], Sequence[float] | Column]) -> Amount:
    """Evaluate a table per pipeline size at (size, index), both perhaps columns."""
    if not isinstance(size, np.ndarray) and not isinstance(index, np.ndarray):
        return float(of(int(size))[int(index)])
    distinct = _distinct(size)
    table = np.zeros((max(distinct, default=0) + 1, max(distinct, default=0) + 1))
    for p in distinct:
        values = of(p)
        table[p, : len(values)] = values
    return np.asarray(table[np.asarray(size), np.asarray(index, dtype=np.int64)])


@lru_cache(maxsize=_MOST_KEPT)
def _boundaries(trunk: _Trunk, size: int) -> Column:
    """Return the first layer of each stage and the end.

    As a request deals them: all chunks of a stage. By "layers": even shares, the rest to the stages
    before the last. By "cost": a stage is full once the matmul weights up to its end are its share
    of all of them, the head's included.
    Source: Megatron-LM and torchtitan divide layers evenly; nanotron's get_block_compute_costs.
    """
    count = sum(kind[0] for kind in trunk.kinds)
    if trunk.dealt and len(trunk.dealt) % size == 0:
        return np.cumsum([0, *(sum(trunk.dealt[index::size]) for index in range(size))])
    if trunk.balance == "cost":
        costs = np.repeat([kind[2] for kind in trunk.kinds], [kind[0] for kind in trunk.kinds])
        reached = np.cumsum(costs)
        total = reached[-1] + trunk.head_weights
        turn = np.arange(1, size)
        ends = np.searchsorted(size * reached, turn * total) + 1
        # A stage closes after one layer at least.
        ends = np.minimum(np.maximum.accumulate(ends - turn) + turn, count)
        return np.concatenate(([0], ends, [count]))
    base, rest = divmod(count, size)
    counts = np.full(size, base)
    counts[max(0, size - 1 - rest) : size - 1] += 1
    return np.concatenate(([0], np.cumsum(counts)))


@lru_cache(maxsize=_MOST_KEPT)
def _blocks_of_kind(trunk: _Trunk, size: int) -> tuple[Column, ...]:
    """Return, for each kind of trunk layer, how many each of `size` stages runs.

    Kinds of equal parameters alternate in the trunk, so each stage gets its share of them; others
    follow one another.
    """
    bounds = _boundaries(trunk, size)
    counts: list[Column] = []
    start = 0
    for _, group in groupby(trunk.kinds, key=lambda kind: kind[1]):
        sizes = [kind[0] for kind in group]
        length = sum(sizes)
        inside = np.diff(np.clip(bounds, start, start + length))
        counts += [inside * (count / length) for count in sizes]
        start += length
    return tuple(counts)


@lru_cache(maxsize=_MOST_KEPT)
def _candidates(trunk: _Trunk, size: int) -> tuple[int, ...]:
    """Return the stages of which one is the heaviest, see `heaviest_stages`."""
    counts = np.array(_blocks_of_kind(trunk, size)).reshape(len(trunk.kinds), size)
    found = [0]
    for index in range(1, size - 1):
        if not any(np.all(counts[:, index] <= counts[:, earlier]) for earlier in found):
            found.append(index)
    return (*found, size - 1) if size > 1 else (0,)
