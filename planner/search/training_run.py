"""A whole training run: steps, time, GPU-hours and what a cloud asks for them."""

import math

from planner.core.frozen import frozen
from planner.core.term import Term, bytes_each, count, rate, seconds
from planner.domain.job import Job
from planner.step_time.ledger import StepTime

HOUR_SECONDS = 3600
_ROUNDING = 1e-9
"""Of a share of padding: a hundred samples in tens are ten steps, whatever their tokens come to."""


@frozen
class TrainingRun:
    """What a number of tokens, without padding, takes with one layout."""

    tokens: int
    steps: int
    """Optimizer steps; the last one may be part of a batch."""
    seconds: float
    """Start-up included."""
    start_up_seconds: float
    low_seconds: float
    high_seconds: float
    gpu_hours: float
    usd: float
    """On demand, whole instances; 0 where no price is known."""
    price_date: str


def training_run(job: Job, step_time: StepTime) -> TrainingRun | None:
    """Return what the recipe's tokens take; None where it names none.

        steps = ceil(tokens / text_tokens_per_step);  seconds = start_up + steps * step_seconds
        usd = nodes * usd_per_hour * hours

    Source: the instance's record for the price and its date.
    Leaves out: evaluation, checkpoints, and hours lost to failures.
    """
    tokens, instance, steps = job.recipe.training_tokens, job.cluster.instance, run_steps(job)
    if not steps:
        return None
    starting = start_up(job)
    before = float(starting.amount)
    doubt = float(starting.spread) * before
    seconds = before + steps * float(step_time.step_seconds)
    hours = seconds / HOUR_SECONDS
    return TrainingRun(
        tokens=tokens,
        steps=steps,
        seconds=seconds,
        start_up_seconds=before,
        low_seconds=before - doubt + steps * float(step_time.low_seconds),
        high_seconds=before + doubt + steps * float(step_time.high_seconds),
        gpu_hours=hours * job.cluster.world_size,
        usd=hours * job.cluster.nodes * instance.usd_per_hour if instance else 0.0,
        price_date=instance.price_date if instance else "",
    )


def run_steps(job: Job) -> int:
    """Return the optimizer steps of the whole run: tokens over those of a step, rounded up; 0 where nobody says them."""
    return math.ceil(job.recipe.training_tokens / job.text_tokens_per_step * (1 - _ROUNDING))


def start_up(job: Job) -> Term:
    """Seconds from the launch to the first step.

        seconds = process + (nccl + nccl_per_gpu * W where W > 1) + stepped_bytes * P / disk

    Notation: W GPUs; P parameters.
    Source: the framework record's start section.
    Leaves out: waiting in a queue, pulling an image, downloading weights, compiling.
    """
    framework, gpus = job.framework, job.cluster.world_size
    joining = framework.start.nccl_seconds + framework.start.nccl_seconds_per_gpu * gpus
    joining = joining if gpus > 1 else 0.0
    weights = bytes_each(job.precision.stepped_bytes) * count(job.model.parameters, "parameters")
    return Term(
        name="start_up",
        arithmetic=seconds(framework.start.process_seconds, "for a process")
        + seconds(joining, "to join the GPUs")
        + weights / rate(framework.start.load_bytes_per_second, "from disk"),
        source=framework.start.source,
        spread=framework.start.spread,
    )
