"""The global batch that a request means: as it says, or what such training usually takes."""

import math

from planner.catalog.batches import UsualBatch
from planner.core.errors import InvalidInputError
from planner.core.units import format_ranks, format_samples
from planner.domain.cluster import Cluster
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import sample_of
from planner.domain.model import Model
from planner.domain.strategy import divisors
from planner.request.remarks import Assumption
from planner.request.sections import RecipeRequest, StrategyRequest

_ROUND = 0.05
_STATE_BYTES = 16
"""Per parameter, with gradients; source: Rajbhandari et al., ZeRO, arXiv:1910.02054, section 3.1."""


def global_batch(
    wanted: RecipeRequest,
    strategy: StrategyRequest | None,
    model: Model,
    usual: UsualBatch,
    cluster: Cluster,
) -> tuple[int, list[Assumption]]:
    """Return the sequences of an optimizer step, and what was assumed: as asked, as implied, or the usual.

    Raises:
        InvalidInputError: it is given twice.
    """
    sequences, tokens = wanted.global_batch_size, wanted.global_batch_tokens
    world_size = cluster.world_size
    if sequences and tokens:
        raise InvalidInputError(
            "the global batch is given in sequences and in tokens",
            hint="give one of them",
            field="recipe.global_batch_tokens",
        )
    asked = sequences or (None if tokens else _implied_batch(strategy, world_size))
    if asked:
        return asked, []
    strategy = strategy or StrategyRequest()
    given = {name for name in strategy.model_fields_set if name.startswith("data_parallel")}
    ranks = _replicas(strategy, world_size)
    at_once = (strategy.micro_batch_size or 1) * (strategy.gradient_accumulation_steps or 1)
    if tokens:
        batch = batch_of_tokens(model, tokens, usual.sequence_length, ranks, at_once)
        why = f" for the {tokens:,} tokens asked for"
    else:
        may_share = not given and not usual.is_of_adapters and _is_divided(model, cluster)
        batch = assumed_batch(usual, ranks, at_once, may_share=may_share)
        each = "one per GPU" if ranks * at_once == world_size else f"as {format_ranks(ranks)} need"
        is_needed = batch == ranks * at_once > math.ceil(usual.largest)
        why = _needed(usual, each) if is_needed else _as_usual(batch, usual)
    size = format_samples(batch, sample_of(wanted.job, reads_images=model.reads_images))
    size += "" if model.reads_images else f" ({batch * usual.sequence_length:,} tokens)"
    text = f"{size} per step{why}"
    return batch, [Assumption(text=text, field="recipe.global_batch_size")]


def assumed_batch(usual: UsualBatch, ranks: int, at_once: int, *, may_share: bool) -> int:
    """Return the batch that such training usually takes, in equal shares of the ranks.

        ranks * at_once * 2^n sequences, the nearest to the smallest usual batch

    The smallest gives a data set the most steps. Of a range that is known, such as fine-tuning's, the next
    larger is taken where the nearest lies below it. Where one share per rank is over twice the largest,
    several ranks share a sequence if they may: the batch is then the largest divisor of the ranks that is
    not larger.

    Args:
        usual: of published runs that train the same.
        ranks: GPUs, or groups of GPUs that share a sequence as the request divides them.
        at_once: sequences that the request gives to each rank, 1 where it says nothing.
        may_share: whether ranks may share a sequence: not where their number was asked for, nor where the
            model need not be divided, as sharing slows each GPU.
    """
    share = ranks * at_once
    doublings = round(math.log2(usual.smallest / share))
    if may_share and doublings <= 0 and share > 2 * int(usual.largest):
        return _shared(int(usual.largest), ranks, at_once)
    batch = share << max(0, doublings)
    is_below = batch < usual.smallest and 2 * batch <= usual.largest
    return 2 * batch if is_below and not usual.is_pretraining else batch


def _is_divided(model: Model, cluster: Cluster) -> bool:
    """Return whether a decoder's states are more than a node holds, so that more than ZeRO divides it.

    Leaves out: activations, and states of other sizes than those of AdamW in mixed precision.
    """
    node_bytes = cluster.gpus_per_node * cluster.gpu.memory_bytes
    return model.is_decoder and _STATE_BYTES * model.parameters > node_bytes


def batch_of_tokens(
    model: Model, wanted_tokens: int, sequence_length: int, ranks: int, at_once: int
) -> int:
    """Return the sequences that come nearest to a number of tokens, in equal shares of the ranks.

    A power of two for each rank where it is within 5 %: people call 4,194,304 tokens 4 M.

    Args:
        model: of what is trained.
        wanted_tokens: of an optimizer step.
        sequence_length: in tokens.
        ranks: as for `assumed_batch`.
        at_once: as for `assumed_batch`.
    """
    share = ranks * at_once
    sequences = wanted_tokens / sequence_length
    if sequences < share and model.is_decoder:
        return _shared(round(sequences), ranks, at_once)
    doubled = share << max(0, round(math.log2(max(1.0, sequences / share))))
    if abs(doubled / sequences - 1) <= _ROUND:
        return doubled
    return share * max(1, round(sequences / share))


def _shared(most_sequences: int, ranks: int, at_once: int) -> int:
    most = max(1, most_sequences // at_once)
    return at_once * max(size for size in divisors(ranks) if size <= most)


def _needed(usual: UsualBatch, each: str) -> str:
    return f", {each} ({usual.training}: {_range(usual)})"


def _as_usual(batch: int, usual: UsualBatch) -> str:
    is_near = usual.is_pretraining and batch <= math.ceil(usual.largest)
    is_said = is_near or usual.smallest == usual.largest == batch
    return f", as in {usual.training}" + ("" if is_said else f" ({_range(usual)})")


def _range(usual: UsualBatch) -> str:
    low, high = f"{usual.smallest:,.0f}", f"{usual.largest:,.0f}"
    return low if low == high else f"{low} to {high}"


def _replicas(strategy: StrategyRequest, world_size: int) -> int:
    sizes = (
        getattr(strategy, dimension.field) for dimension in DIMENSIONS if not dimension.is_of_data
    )
    divided: int = math.prod(sizes)
    return max(1, world_size // divided)


def _implied_batch(strategy: StrategyRequest | None, world_size: int) -> int | None:
    if strategy is None or strategy.micro_batch_size is None:
        return None
    if strategy.gradient_accumulation_steps is None:
        return None
    replicas = _replicas(strategy, world_size)
    replicate, shard = strategy.data_parallel_replicate_size, strategy.data_parallel_shard_size
    if replicate and shard:
        # The GPUs may be more than the request's own, up to max_gpus.
        replicas = replicate * shard
    return strategy.micro_batch_size * strategy.gradient_accumulation_steps * replicas
