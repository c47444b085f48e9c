"""A wished strategy -> the layout it means for a job, with every gap filled and every sum checked."""

from typing import Any

from planner.job import Job
from planner.limits import check
from planner.request import StrategyRequest
from planner.space import Wish
from planner.strategy import Strategy


def whole_strategy(wish: StrategyRequest | None, job: Job) -> Strategy:
    """Return the one layout to estimate; what the wish leaves open is the simplest choice.

    Raises:
        UnsupportedError: a degree or technique that is not estimated for such a model or framework.
        InvalidInputError: sizes do not multiply to the world size, do not divide the model, or the
            batch does not split.
    """
    strategy = filled(job, partial_wish(wish))
    check(job, strategy)
    return strategy


def partial_wish(wish: StrategyRequest | None) -> Wish:
    """Return the fields that were given, which a suggestion must hold fixed."""
    given = wish.model_dump(exclude_unset=True) if wish else {}
    return {name: value for name, value in given.items() if value is not None}


def filled(job: Job, wish: Wish) -> Strategy:
    """Return the simplest layout with the wished values, whether it can run or not."""
    given: dict[str, Any] = dict(wish)
    s = Strategy(**given)
    others = s.tensor_parallel_size * s.pipeline_parallel_size * s.context_parallel_size
    ranks = max(1, job.cluster.world_size // others)
    replicate, shard = _data_parallel(given, ranks)
    micro_batch, steps = _batch(given, job.recipe.global_batch_size, replicate * shard)
    return Strategy(
        **given
        | {
            "data_parallel_replicate_size": replicate,
            "data_parallel_shard_size": shard,
            "micro_batch_size": micro_batch,
            "gradient_accumulation_steps": steps,
        }
    )


def _data_parallel(given: dict[str, Any], ranks: int) -> tuple[int, int]:
    """Return replicas and shards, each derived from the other; ZeRO shards over all ranks."""
    replicate = given.get("data_parallel_replicate_size")
    shard = given.get("data_parallel_shard_size")
    if replicate is None:
        is_sharded = given.get("zero_stage") and not shard
        replicate = 1 if is_sharded else max(1, ranks // (shard or 1))
    return replicate, shard or max(1, ranks // replicate)


def _batch(given: dict[str, Any], batch: int, ranks: int) -> tuple[int, int]:
    """Return micro-batch size and accumulation steps, each derived when the other is given."""
    micro_batch, steps = given.get("micro_batch_size"), given.get("gradient_accumulation_steps")
    if micro_batch is None:
        micro_batch = max(1, batch // (ranks * steps)) if steps else 1
    return micro_batch, steps or max(1, batch // (ranks * micro_batch))
