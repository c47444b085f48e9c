"""A batch and what follows from it: what was asked in, the plan of it and its JSON out."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from planner.advice.batch_arithmetic import splits
from planner.advice.batch_plan import BatchPlan, BatchWish, batch_plan, published_rate
from planner.answers.envelope import SCHEMA_VERSION
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.request.assumed import assumed_sequence_length
from planner.request.model import ModelRequest, load_model

if TYPE_CHECKING:
    from planner.answers.shapes import BatchPlanAnswer


def data_parallel_ranks(gpus: int, wanted: int | None) -> int:
    """Return how many ranks a batch is divided among: all the GPUs, or as many as are wanted.

    Raises:
        InvalidInputError: they do not divide the GPUs.
    """
    if wanted is not None and gpus % wanted and gpus > 1:
        said = f"{wanted} data-parallel ranks do not divide {gpus} GPUs"
        raise InvalidInputError(said, field="--dp")
    return wanted or gpus


@frozen
class Trained:
    """Which model is trained, and how: what a published learning rate is looked up by."""

    model: ModelRequest | None = None
    """None: no rate is looked up."""
    method: str = "full"
    from_scratch: bool = False
    task: str | None = None
    """For another head than the model's."""


def plan_batch(
    wish: BatchWish, trained: Trained, *, allow_paths: bool
) -> tuple[BatchPlan, tuple[str, ...]]:
    """Return the plan of a batch, and notes on its model.

    Args:
        wish: what is asked; without a rate the model's nearest published run gives one.
        trained: the model, and how it is trained.
        allow_paths: whether the model may be a file of this machine.

    Raises:
        PlannerError: the batch does not divide, or the model cannot be found.
    """
    if trained.model is None or wish.learning_rate is not None:
        return batch_plan(wish), ()
    ways = splits(
        wish.ranks,
        global_batch_size=wish.global_batch_size,
        micro_batch_size=wish.micro_batch_size,
        accumulation_steps=wish.accumulation_steps,
    )
    model, notes = load_model(trained.model, allow_paths=allow_paths, task=trained.task)
    published = published_rate(
        model,
        is_pretrained=model.is_pretrained and not trained.from_scratch,
        has_adapters=trained.method != "full",
        batch=ways[0].global_batch_size,
        sequence_length=assumed_sequence_length(model, 1),
    )
    return batch_plan(wish, published), notes


def answer_batch_plan(plan: BatchPlan) -> BatchPlanAnswer:
    """Return a batch as `planner batch --json` prints it."""
    first = plan.splits[0]
    return {
        "schema_version": SCHEMA_VERSION,
        "global_batch_size": first.global_batch_size,
        "data_parallel_size": first.data_parallel_size,
        "splits": [asdict(split) for split in plan.splits],
        "run": asdict(plan.run) if plan.run else None,
        "warmup_steps": plan.warmup_steps,
        "accelerate_schedule_ends_at_step": plan.scheduler_end,
        "tuned": asdict(plan.tuned) if plan.tuned else None,
        "learning_rates": [asdict(rate) for rate in plan.rates],
        "settings": {name: list(lines) for name, lines in plan.settings.items()},
        "warnings": list(plan.warnings),
    }
