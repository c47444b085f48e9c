"""A wished strategy -> the layout it means for a job, with every gap filled and every sum checked."""

import math

from planner import catalog
from planner.errors import InvalidInputError, UnsupportedError
from planner.framework import Framework
from planner.job import Job
from planner.request import StrategyRequest
from planner.strategy import ZERO_1, Strategy, nearest_multiples

_MODEL_PARALLEL = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "context_parallel_size",
    "expert_parallel_size",
)
_NOT_SEARCHED = {
    **dict.fromkeys(_MODEL_PARALLEL, 1),
    "virtual_pipeline_size": 1,
    "offload": "none",
    "synchronize_every": 1,
}
"""Fields whose other values are estimated, but not searched for yet."""


def whole_strategy(wish: StrategyRequest | None, job: Job) -> Strategy:
    """Return the one layout to estimate; what the wish leaves open is the simplest choice.

    Raises:
        UnsupportedError: a degree or technique that is not estimated yet.
        InvalidInputError: sizes do not multiply to the world size, do not divide the model, or the
            batch does not split.
    """
    wish = wish or StrategyRequest()
    _check_model_parallel(wish, job)
    zero_stage = wish.zero_stage or 0
    _check_local_sgd(wish, zero_stage)
    _check_offload(wish.offload, zero_stage, job.framework)
    replicate, shard = _data_parallel(wish, zero_stage, job.cluster.world_size)
    micro_batch, steps = _batch(wish, job, replicate * shard)
    return Strategy(
        data_parallel_replicate_size=replicate,
        data_parallel_shard_size=shard,
        tensor_parallel_size=wish.tensor_parallel_size,
        sequence_parallel=wish.sequence_parallel,
        pipeline_parallel_size=wish.pipeline_parallel_size,
        virtual_pipeline_size=wish.virtual_pipeline_size,
        pipeline_schedule=wish.pipeline_schedule,
        context_parallel_size=wish.context_parallel_size,
        expert_parallel_size=wish.expert_parallel_size,
        zero_stage=zero_stage,
        micro_batch_size=micro_batch,
        gradient_accumulation_steps=steps,
        recompute=wish.recompute or "none",
        offload=wish.offload,
        synchronize_every=wish.synchronize_every,
    )


def partial_wish(wish: StrategyRequest | None) -> dict[str, object]:
    """Return the fields that a suggestion must hold fixed.

    Raises:
        UnsupportedError: a degree or technique that is not searched for yet.
    """
    if wish is None:
        return {}
    for name, only in _NOT_SEARCHED.items():
        if getattr(wish, name) != only:
            raise UnsupportedError(
                f"{name}={getattr(wish, name)} is not searched for yet",
                hint=f"only {name}={only} is: data parallelism and ZeRO on every GPU",
                field=f"strategy.{name}",
            )
    _refuse_selective(wish)
    fixed = {*_NOT_SEARCHED, "sequence_parallel", "pipeline_schedule"}
    return {
        name: value
        for name, value in wish.model_dump(exclude_unset=True).items()
        if value is not None and name not in fixed
    }


def _check_local_sgd(wish: StrategyRequest, zero_stage: int) -> None:
    """Raise where parameters that drift apart between averages would have to be one tensor."""
    is_split = zero_stage > 0 or any(getattr(wish, name) > 1 for name in _MODEL_PARALLEL)
    if wish.synchronize_every > 1 and is_split:
        raise InvalidInputError(
            f"synchronize_every={wish.synchronize_every} (local SGD) averages whole replicas, but"
            " this layout divides them",
            hint="use zero_stage 0 and no model parallelism, or synchronize_every 1",
            field="strategy.synchronize_every",
        )


def _check_offload(offload: str, zero_stage: int, framework: Framework) -> None:
    """Raise for an offload that the framework does not know, or not at that ZeRO stage."""
    if offload == "none":
        return
    if offload not in framework.offloads:
        able = [
            name
            for name in catalog.framework_names()
            if offload in catalog.framework(name).offloads
        ]
        own = f"; {framework.name} knows {', '.join(framework.offloads)}"
        raise UnsupportedError(
            f"{framework.name} cannot offload={offload}",
            hint=f"{', '.join(able)} can{own if framework.offloads else ''}",
            field="strategy.offload",
        )
    moves_parameters = offload == "optimizer+parameters"
    least = framework.parameters_sharded_from if moves_parameters else ZERO_1
    if zero_stage < least:
        raise InvalidInputError(
            f"offload={offload} keeps shards in host memory, but zero_stage {zero_stage} of"
            f" {framework.name} has none to keep",
            hint=f"use zero_stage {least} or more",
            field="strategy.offload",
        )


def _refuse_selective(wish: StrategyRequest) -> None:
    if wish.recompute == "selective":
        raise UnsupportedError(
            "recompute=selective is not searched for yet",
            hint="none and full are",
            field="strategy.recompute",
        )


def _check_model_parallel(wish: StrategyRequest, job: Job) -> None:
    """Raise InvalidInputError for a degree that does not divide what it splits."""
    model = job.model
    if not model.is_decoder and any(getattr(wish, name) > 1 for name in _MODEL_PARALLEL):
        raise UnsupportedError(
            f"{model.name} ({model.model_type}) is not split by tensor, pipeline, context or expert"
            " parallelism here: only decoder-only language models are",
            hint="data parallelism and ZeRO split any model",
            field="strategy",
        )
    heads = [part.attention.num_heads for part in model.blocks if part.attention]
    experts = [layer.num_experts for part in model.blocks for layer in part.linears]
    for name, whole, what in (
        ("tensor_parallel_size", math.gcd(*heads) if heads else 1, "attention heads"),
        ("expert_parallel_size", max(experts, default=1), "experts"),
        ("context_parallel_size", job.recipe.sequence_length, "tokens of a sequence"),
    ):
        size = getattr(wish, name)
        if size > 1 and whole % size:
            raise InvalidInputError(
                f"{name} {size} does not divide the {whole:,} {what}",
                hint=f"use a divisor of {whole:,}",
                field=f"strategy.{name}",
            )
    stages = wish.pipeline_parallel_size * wish.virtual_pipeline_size
    if wish.pipeline_parallel_size > 1 and stages > model.num_blocks:
        raise InvalidInputError(
            f"{model.num_blocks} layers do not fill {stages} pipeline stages",
            hint=f"at most {model.num_blocks}",
            field="strategy.pipeline_parallel_size",
        )


def _data_parallel(wish: StrategyRequest, zero_stage: int, world_size: int) -> tuple[int, int]:
    replicate, shard = wish.data_parallel_replicate_size, wish.data_parallel_shard_size
    others = wish.tensor_parallel_size * wish.pipeline_parallel_size * wish.context_parallel_size
    ranks, rest = divmod(world_size, others)
    if rest:
        raise InvalidInputError(
            f"tensor x pipeline x context parallel sizes are {others}, which does not divide"
            f" {world_size} GPUs",
            hint="the sizes must multiply to nodes x gpus_per_node",
            field="strategy",
        )
    if replicate is None:
        replicate = ranks // (shard or 1) if zero_stage == 0 or shard else 1
    if shard is None:
        shard = ranks // replicate
    if replicate * shard != ranks:
        of_them = "" if others == 1 else f" for {others} model-parallel ranks each"
        raise InvalidInputError(
            f"data_parallel_replicate_size {replicate} x data_parallel_shard_size {shard}"
            f" = {replicate * shard}{of_them}, but there are {world_size} GPUs",
            hint="the sizes must multiply to nodes x gpus_per_node",
            field="strategy",
        )
    if not zero_stage and shard > 1:
        raise InvalidInputError(
            f"zero_stage 0 (DDP) shards nothing, but data_parallel_shard_size is {shard}",
            hint=f"use data_parallel_replicate_size {ranks}, or zero_stage 1, 2 or 3",
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
