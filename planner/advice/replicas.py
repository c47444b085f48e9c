"""Ways to train whole replicas side by side: DDP, nn.DataParallel, local SGD, against one GPU."""

from collections.abc import Iterator
from dataclasses import replace

from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.term import Term, total
from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.search.candidate import Candidate, estimate
from planner.search.largest_that_fits import with_gpus
from planner.search.local_sgd import FEWEST_AVERAGES, INTERVALS, LocalSgd, local_sgd
from planner.step_time.ledger import estimate_step_time
from planner.step_time.nn_data_parallel import EXCHANGES, data_parallel_step

DDP, EVERY_MICRO_BATCH, NN_DATA_PARALLEL = "DDP", "DDP without no_sync", "nn.DataParallel"


@frozen
class Way:
    """One way to train, and what a step of it takes."""

    name: str
    step_seconds: float
    samples_per_second: float
    times_as_fast: float
    """In samples per second, over one GPU with a rank's share of the batch."""


@frozen
class Interval:
    """Local SGD with one interval between averages."""

    synchronize_every: int
    step_seconds: float
    times_as_fast: float
    averages: float
    """In the run; 0 where its length is unknown."""
    is_risky: bool
    """Whether the run has few of them."""


@frozen
class Replicas:
    """Every way to train with a whole replica on each GPU."""

    job: Job
    candidate: Candidate
    """Plain DDP."""
    one_gpu: Way
    ways: tuple[Way, ...]
    exchanges: tuple[Term, ...]
    """Of nn.DataParallel, in its step; empty where it cannot run."""
    local: LocalSgd | None
    """None where the framework has none."""
    intervals: tuple[Interval, ...]
    run_steps: float
    """Optimizer steps of the run; 0 where its length is unknown."""


def compare_replicas(job: Job, layout: Layout) -> Replicas:
    """Return the ways to train a layout's replicas.

        times_as_fast = (samples / step_seconds) / (m * A / seconds of one GPU)

    Notation: m micro-batch, A accumulation steps of a rank.

    Raises:
        InvalidInputError: the layout divides the model, or there is one GPU.
    """
    gpus = job.cluster.world_size
    if gpus == 1 or layout.data_parallel_replicate_size != gpus or layout.zero_stage:
        raise InvalidInputError(
            "replicas needs two GPUs or more, with a whole replica on each",
            hint="--gpus 2 or more, and no strategy but ddp",
            field="strategy",
        )
    layout = replace(layout, synchronize_every=1)
    candidate, one_gpu = estimate(job, layout), _one_gpu(job, layout)
    exchanged = _in_one_process(job, layout)
    local = local_sgd(job, layout) if job.framework.capabilities.local_sgd else None
    steps = job.recipe.training_tokens / job.text_tokens_per_step
    seconds = {DDP: float(candidate.step_time.step_seconds)}
    if layout.gradient_accumulation_steps > 1:
        seconds[EVERY_MICRO_BATCH] = _synchronized_each_time(job, layout)
    if exchanged:
        seconds[NN_DATA_PARALLEL] = float(total(exchanged))
    if local is not None:
        interval = max(INTERVALS[0], local.interval)
        seconds[f"local SGD, K = {interval}"] = local.step_seconds(interval)
    return Replicas(
        job=job,
        candidate=candidate,
        one_gpu=one_gpu,
        ways=tuple(_way(name, each, job, one_gpu) for name, each in seconds.items()),
        exchanges=tuple(term for term in exchanged if term.name in EXCHANGES),
        local=local,
        intervals=tuple(_intervals(job, local, one_gpu, steps)) if local is not None else (),
        run_steps=steps,
    )


def _one_gpu(job: Job, layout: Layout) -> Way:
    samples = layout.micro_batch_size * layout.gradient_accumulation_steps
    alone = with_gpus(job, 1, 1)
    alone = replace(alone, recipe=replace(alone.recipe, global_batch_size=samples))
    one = estimate_step_time(alone, replace(layout, data_parallel_replicate_size=1))
    seconds = float(one.step_seconds)
    return Way(
        name="one GPU",
        step_seconds=seconds,
        samples_per_second=samples / seconds,
        times_as_fast=1.0,
    )


def _way(name: str, seconds: float, job: Job, one_gpu: Way) -> Way:
    rate = job.recipe.global_batch_size / seconds
    return Way(
        name=name,
        step_seconds=seconds,
        samples_per_second=rate,
        times_as_fast=rate / one_gpu.samples_per_second,
    )


def _synchronized_each_time(job: Job, layout: Layout) -> float:
    sharding = replace(job.framework.sharding, reduces_every_micro_batch_from=0)
    every = replace(job, framework=replace(job.framework, sharding=sharding))
    return float(estimate_step_time(every, layout).step_seconds)


def _in_one_process(job: Job, layout: Layout) -> tuple[Term, ...]:
    """Return a step of nn.DataParallel; nothing where it cannot run or is not estimated."""
    is_able = job.cluster.nodes == 1 and job.recipe.lora is None and job.model.has_token_loss
    return data_parallel_step(job, layout) if is_able else ()


def _intervals(job: Job, local: LocalSgd, one_gpu: Way, steps: float) -> Iterator[Interval]:
    """Yield the intervals from every step to the one after the chosen, 16 at least."""
    last = max(16, 2 * local.interval)
    for interval in (1, *INTERVALS):
        if interval <= last:
            way = _way("", local.step_seconds(interval), job, one_gpu)
            averages = steps / interval
            yield Interval(
                synchronize_every=interval,
                step_seconds=way.step_seconds,
                times_as_fast=way.times_as_fast,
                averages=averages,
                is_risky=interval > 1 and 0 < averages < FEWEST_AVERAGES,
            )
