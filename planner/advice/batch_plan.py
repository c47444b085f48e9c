"""The whole answer about a batch: how it is made, its steps, its rate, what to set and what to fear."""

import math
from collections.abc import Mapping

from planner.advice.batch_arithmetic import (
    WARMUP_FRACTION,
    BatchSplit,
    RunSteps,
    ScaledRate,
    batch_warnings,
    run_steps,
    scaled_rates,
    scheduler_end,
    splits,
    warmup_steps,
)
from planner.advice.batch_by_framework import settings
from planner.catalog.learning_rates import find_recipe
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.domain.model import Model


@frozen
class BatchWish:
    """What is asked about a batch."""

    ranks: int
    global_batch_size: int | None = None
    micro_batch_size: int | None = None
    accumulation_steps: int | None = None
    samples: int | None = None
    epochs: float = 1.0
    max_steps: int | None = None
    warmup_fraction: float | None = None
    learning_rate: float | None = None
    from_batch: int | None = None
    """Global batch that the rate was tuned with; None for that of one rank."""


@frozen
class TunedRate:
    """A learning rate that a run was tuned with, at its batch."""

    learning_rate: float
    batch: int
    warmup_fraction: float
    source: str


@frozen
class BatchPlan:
    """What there is to say about a batch."""

    splits: tuple[BatchSplit, ...]
    """Every way to make it, the largest micro-batch first."""
    run: RunSteps | None
    """The same of every way; None where the data set is unknown."""
    warmup_steps: int | None
    tuned: TunedRate | None
    rates: tuple[ScaledRate, ...]
    settings: Mapping[str, tuple[str, ...]]
    """By framework; empty where there are several ways."""
    scheduler_end: int | None
    """The step at which a schedule of all steps ends under accelerate, where each call is N steps."""
    warnings: tuple[str, ...]


def published_rate(
    model: Model, *, is_pretrained: bool, has_adapters: bool, batch: int, sequence_length: int
) -> TunedRate:
    """Return the rate of the published run that is nearest to a model, at the end of its batches next to one.

    Args:
        model: of what is trained.
        is_pretrained: whether it starts from trained weights.
        has_adapters: whether only adapters are trained.
        batch: sequences of a step.
        sequence_length: in tokens; published batches may be counted in those.
    """
    recipe = find_recipe(
        task=model.task,
        model_type=model.model_type,
        is_pretrained=is_pretrained,
        has_adapters=has_adapters,
        parameters=model.parameters,
    )
    low, high = (max(1, round(end)) for end in recipe.sequences(sequence_length))
    return TunedRate(
        learning_rate=recipe.learning_rate,
        batch=min(max(batch, low), high),
        warmup_fraction=recipe.warmup_fraction,
        source=recipe.source,
    )


def batch_plan(wish: BatchWish, published: TunedRate | None = None) -> BatchPlan:
    """Return the answer about a batch.

    Args:
        wish: what is asked.
        published: a rate to start from, where the wish names none.

    Raises:
        InvalidInputError: the batch does not divide, or is not given; or a number is none.
    """
    if not (math.isfinite(wish.epochs) and math.isfinite(wish.learning_rate or 0)):
        raise InvalidInputError("epochs and a learning rate are finite numbers", field="--epochs")
    if wish.from_batch is not None and wish.learning_rate is None:
        raise InvalidInputError(
            "the batch that a learning rate was tuned with is given, and the rate is not",
            hint="add --learning-rate",
            field="--from-batch",
        )
    ways = splits(
        wish.ranks,
        global_batch_size=wish.global_batch_size,
        micro_batch_size=wish.micro_batch_size,
        accumulation_steps=wish.accumulation_steps,
    )
    run = None if wish.samples is None else run_steps(ways[0], wish.samples, wish.epochs)
    tuned = _tuned(wish, ways[0]) or published
    batch = ways[0].global_batch_size
    fraction = wish.warmup_fraction
    if fraction is None:
        fraction = tuned.warmup_fraction if tuned else WARMUP_FRACTION
    warmup = warmup_steps(run, fraction) if run else None
    return BatchPlan(
        splits=ways,
        run=run,
        warmup_steps=warmup,
        tuned=tuned,
        rates=scaled_rates(tuned.learning_rate, tuned.batch, batch) if tuned else (),
        settings=settings(ways[0], run, warmup) if len(ways) == 1 else {},
        scheduler_end=scheduler_end(run.steps, wish.ranks) if run and wish.ranks > 1 else None,
        warnings=batch_warnings(
            ways[0], run, from_batch=tuned.batch if tuned else None, max_steps=wish.max_steps
        ),
    )


def _tuned(wish: BatchWish, split: BatchSplit) -> TunedRate | None:
    if wish.learning_rate is None:
        return None
    alone = split.global_batch_size // split.data_parallel_size
    return TunedRate(
        learning_rate=wish.learning_rate,
        batch=wish.from_batch or alone,
        warmup_fraction=WARMUP_FRACTION,
        source="given" if wish.from_batch else "given; taken as tuned on one GPU",
    )
