"""Plan -> its answer at a glance: a title, what was planned, a verdict and four figures."""

from collections.abc import Iterator

from planner.core.frozen import frozen
from planner.core.units import (
    format_bytes,
    format_count,
    format_duration,
    format_fraction,
    format_gpus,
    format_samples,
    format_seconds,
    format_steps,
    format_sum,
)
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import Job
from planner.domain.strategy import DATA_NAMES, Layout, Recompute
from planner.report.layout_words import (
    FAMILY_NAMES,
    recompute_text,
    speed_of,
    speed_unit,
    subject,
    unsure_text,
)
from planner.search.candidate import Candidate
from planner.search.training_run import TrainingRun, training_run


@frozen
class Tile:
    """One figure, what more it says, and how far it is to be trusted."""

    label: str
    amount: str
    rest: str
    trust: str


def heading(job: Job, candidate: Candidate) -> str:
    """Return how the work is divided, such as `ZeRO-3 over 8 GPUs`."""
    names = " x ".join(_parts(candidate.strategy)) or "No parallelism"
    preposition = "on" if job.cluster.world_size == 1 else "over"
    return f"{names} {preposition} {format_gpus(job.cluster.world_size)}"


def _parts(s: Layout) -> Iterator[str]:
    for dimension in DIMENSIONS:
        if s.uses(dimension):
            yield f"{dimension.name} parallel {s.size(dimension)}"
    if s.data_parallel_size * s.context_parallel_size > 1 or s.offloads_optimizer:
        name, _, _ = FAMILY_NAMES[DATA_NAMES[s.zero_stage]].partition(" (")
        yield "HSDP" if s.is_hybrid else "local SGD" if s.is_local else name
    if s.offloads_optimizer:
        yield "offload"


def chips(job: Job, candidate: Candidate) -> tuple[str, ...]:
    """Return what is trained, on what and in which portions, each in a few words."""
    cluster, recipe, s = job.cluster, job.recipe, candidate.strategy
    nodes = f"{cluster.nodes:,} nodes of " if cluster.nodes > 1 else ""
    are_images = job.model.reads_images
    batch = format_samples(recipe.global_batch_size, job.sample)
    length = "" if are_images else f" of {recipe.sequence_length:,} tokens"
    steps = s.gradient_accumulation_steps
    return (
        subject(job),
        f"{nodes}{cluster.gpus_per_node} x {cluster.gpu.name}",
        f"{batch}{length} per step",
        f"micro-batch {s.micro_batch_size}" + (f", accumulated {steps} times" if steps > 1 else ""),
        f"{recompute_text(s)} recompute" if s.recompute != Recompute.NONE else "nothing recomputed",
        f"{recipe.precision}, {recipe.optimizer}, {job.framework.name}",
    )


def tiles(job: Job, candidate: Candidate) -> tuple[Tile, ...]:
    """Return memory, step, speed, and the run where its length is known."""
    run = training_run(job, candidate.step_time)
    each_step = (_memory(job, candidate), _step(candidate), _speed(job, candidate))
    return (*each_step, _run(run)) if run else each_step


def _memory(job: Job, candidate: Candidate) -> Tile:
    memory, usable = candidate.memory, job.usable_bytes
    left = usable - float(memory.reserved_bytes)
    word = "of headroom" if left >= 0 else "too much"
    over = float(memory.high_bytes) - usable
    at_worst = f", and up to {format_bytes(over)} too much" if candidate.fits and over > 0 else ""
    at_worst = at_worst or unsure_text(memory, usable)
    return Tile(
        label="Memory of a GPU",
        amount=format_bytes(memory.reserved_bytes),
        rest=f"of {format_bytes(usable)}: {format_bytes(abs(left))} {word}{at_worst}",
        trust=f"likely {format_bytes(memory.low_bytes)} to {format_bytes(memory.high_bytes)}",
    )


def _step(candidate: Candidate) -> Tile:
    step = candidate.step_time
    return Tile(
        label="Optimizer step",
        amount=format_seconds(step.step_seconds),
        rest="forward, backward and update",
        trust=f"likely {format_seconds(step.low_seconds)} to {format_seconds(step.high_seconds)}",
    )


def _speed(job: Job, candidate: Candidate) -> Tile:
    """Tokens or images per second of all GPUs; its range is the step's, turned over."""
    step = candidate.step_time
    speed = speed_of(job, candidate)
    likely = float(step.step_seconds)
    slowest, fastest = (
        format_count(speed * likely / float(seconds))
        for seconds in (step.high_seconds, step.low_seconds)
    )
    padding = job.recipe.padding_share
    without = f", {format_fraction(padding)} padding left out" if padding else ""
    return Tile(
        label="Speed",
        amount=format_count(speed),
        rest=f"{speed_unit(job)}, {format_fraction(step.model_flops_utilization)} MFU{without}",
        trust=f"likely {slowest} to {fastest}",
    )


def _run(run: TrainingRun) -> Tile:
    price = f", ${format_sum(run.usd)} on demand ({run.price_date})" if run.usd else ""
    low, high = format_duration(run.low_seconds), format_duration(run.high_seconds)
    return Tile(
        label=f"Run of {format_count(run.tokens)} tokens",
        amount=format_duration(run.seconds),
        rest=f"{format_steps(run.steps)}, {format_sum(run.gpu_hours)} GPU-hours{price}",
        trust=f"likely {low} to {high}",
    )
