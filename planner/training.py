"""A whole training run: steps, time, GPU-hours and what a cloud asks for them."""

import math
from dataclasses import dataclass

from planner.job import Job
from planner.step_time import StepTime

HOUR_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What a number of tokens takes with one layout."""

    tokens: int
    steps: int
    """Optimizer steps; the last one may be part of a batch."""
    seconds: float
    low_seconds: float
    high_seconds: float
    gpu_hours: float
    usd: float
    """On demand, whole instances; 0 where no price is known."""
    price_date: str


def training(job: Job, step_time: StepTime) -> Training | None:
    """Return what the recipe's tokens take; None where it names none.

        steps = ceil(tokens / tokens_per_step);  usd = nodes * usd_per_hour * hours

    Source: the instance's record for the price and its date.
    Leaves out: start-up, evaluation, checkpoints, and hours lost to failures.
    """
    tokens, instance = job.recipe.training_tokens, job.cluster.instance
    if not tokens:
        return None
    steps = math.ceil(tokens / job.tokens_per_step)
    seconds = steps * float(step_time.step_seconds)
    hours = seconds / HOUR_SECONDS
    return Training(
        tokens=tokens,
        steps=steps,
        seconds=seconds,
        low_seconds=steps * float(step_time.low_seconds),
        high_seconds=steps * float(step_time.high_seconds),
        gpu_hours=hours * job.cluster.world_size,
        usd=hours * job.cluster.nodes * instance.usd_per_hour if instance else 0.0,
        price_date=instance.price_date if instance else "",
    )
