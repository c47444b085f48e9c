"""A wished strategy -> the layout it means for a job, with every gap filled and every sum checked."""

from typing import Any

from planner.errors import InvalidInputError, UnsupportedError
from planner.job import Job
from planner.request import StrategyRequest
from planner.strategy import Strategy, nearest_multiples

_NOT_YET = {
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "context_parallel_size": 1,
    "expert_parallel_size": 1,
    "offload": "none",
    "synchronize_every": 1,
}
"""Fields whose other values later versions will estimate."""


def whole_strategy(wish: StrategyRequest | None, job: Job) -> Strategy:
    """Return the one layout to estimate; what the wish leaves open is the simplest choice.

    Raises:
        UnsupportedError: a degree or technique that is not estimated yet.
        InvalidInputError: sizes do not multiply to the world size, or the batch does not split.
    """
    wish = wish or StrategyRequest()
    _refuse_unsupported(wish)
    zero_stage = wish.zero_stage or 0
    replicate, shard = _data_parallel(wish, zero_stage, job.cluster.world_size)
    micro_batch, steps = _batch(wish, job, replicate * shard)
    return Strategy(
        data_parallel_replicate_size=replicate,
        data_parallel_shard_size=shard,
        sequence_parallel=wish.sequence_parallel,
        zero_stage=zero_stage,
        micro_batch_size=micro_batch,
        gradient_accumulation_steps=steps,
        recompute=wish.recompute or "none",
    )


def partial_wish(wish: StrategyRequest | None) -> dict[str, object]:
    """Return the fields that a suggestion must hold fixed.

    Raises:
        UnsupportedError: a degree or technique that is not estimated yet.
    """
    if wish is None:
        return {}
    _refuse_unsupported(wish)
    return {
        name: value
        for name, value in wish.model_dump(exclude_unset=True).items()
        if value is not None and name not in {*_NOT_YET, "sequence_parallel", "pipeline_schedule"}
    }


def _refuse_unsupported(wish: StrategyRequest) -> None:
    for name, only in _NOT_YET.items():
        value: Any = getattr(wish, name)
        if value != only:
            raise UnsupportedError(
                f"{name}={value} is not estimated yet",
                hint=f"only {name}={only} is: data parallelism and ZeRO on every GPU",
                field=f"strategy.{name}",
            )
    if wish.recompute == "selective":
        raise UnsupportedError(
            "recompute=selective is not estimated yet",
            hint="none and full are",
            field="strategy.recompute",
        )


def _data_parallel(wish: StrategyRequest, zero_stage: int, world_size: int) -> tuple[int, int]:
    replicate, shard = wish.data_parallel_replicate_size, wish.data_parallel_shard_size
    if replicate is None:
        replicate = world_size // (shard or 1) if zero_stage == 0 or shard else 1
    if shard is None:
        shard = world_size // replicate
    if replicate * shard != world_size:
        raise InvalidInputError(
            f"data_parallel_replicate_size {replicate} x data_parallel_shard_size {shard}"
            f" = {replicate * shard}, but there are {world_size} GPUs",
            hint="the sizes must multiply to nodes x gpus_per_node",
            field="strategy",
        )
    if zero_stage and replicate > 1:
        raise UnsupportedError(
            f"ZeRO-{zero_stage} with {replicate} replicas (HSDP) is not estimated yet",
            hint=f"use data_parallel_shard_size {world_size}",
            field="strategy.data_parallel_replicate_size",
        )
    if not zero_stage and shard > 1:
        raise InvalidInputError(
            f"zero_stage 0 (DDP) shards nothing, but data_parallel_shard_size is {shard}",
            hint=f"use data_parallel_replicate_size {world_size}, or zero_stage 1, 2 or 3",
            field="strategy.data_parallel_shard_size",
        )
    return replicate, shard


def _batch(wish: StrategyRequest, job: Job, ranks: int) -> tuple[int, int]:
    """Return micro-batch size and accumulation steps, each derived when the other is given."""
    batch = job.recipe.global_batch_size
    micro_batch, steps = wish.micro_batch_size, wish.gradient_accumulation_steps
    if micro_batch is None:
        micro_batch = max(1, batch // (ranks * steps)) if steps else 1
    if steps is None:
        steps = max(1, batch // (ranks * micro_batch))
    if micro_batch * steps * ranks != batch:
        raise InvalidInputError(
            f"micro_batch_size {micro_batch} x gradient_accumulation_steps {steps}"
            f" x {ranks} ranks = {micro_batch * steps * ranks}, but global_batch_size is {batch}",
            hint=nearest_multiples(batch, micro_batch * ranks),
            field="recipe.global_batch_size",
        )
    return micro_batch, steps
