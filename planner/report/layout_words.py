"""A job, its layout and what that takes -> words and figures of every report."""

import re
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum

from planner.core.term import Amount, Term, total
from planner.core.units import (
    format_bytes,
    format_count,
    format_duration,
    format_fraction,
    format_gpus,
    format_ranks,
    format_samples,
    format_seconds,
    format_steps,
    format_sum,
)
from planner.domain.dimensions import DIMENSIONS
from planner.domain.framework import Framework
from planner.domain.job import Job
from planner.domain.recompute_modules import names_of
from planner.domain.strategy import DATA_NAMES, Layout, Recompute
from planner.hardware.placement import cuda_visible_devices
from planner.memory.ledger import Memory
from planner.memory.phases import PHASES
from planner.report.flags import flags
from planner.report.values import Figure, Terminal
from planner.request.remarks import Assumption
from planner.search.candidate import Candidate
from planner.search.training_run import training_run
from planner.step_time.terms import COMMUNICATION, StepTerm

_NOTABLE_START = 0.05
"""Share of a run that start-up must take to be said."""
_LEAST_SHARE = 0.01

FAMILY_NAMES = {
    "ddp": "DDP",
    "zero-1": "ZeRO-1",
    "zero-2": "ZeRO-2 (FSDP, parameters kept through backward)",
    "zero-3": "ZeRO-3 (FSDP, full shard)",
}


_FLAG = re.compile(r"--[a-z][a-z0-9-]*")
_ASIDE = re.compile(r" \([^()]*\)")
_POST_TRAINING = {
    "grpo": "GRPO of ",
    "dpo": "DPO of ",
    "orpo": "ORPO of ",
    "simpo": "SimPO of ",
    "reward": "Reward model of ",
}
_EITHER = {"recipe.job": "--job pretrain or finetune"}
"""Flags whose values are worth the words, where one was assumed."""


def assumptions_text(assumptions: Sequence[Assumption], terminal: Terminal) -> str:
    """Return the assumptions in one paragraph, each with the flag that changes it."""
    said = assumptions_words(assumptions)
    return terminal.paragraph(f"Assumed {said}", rest="  ") if said else ""


def assumptions_words(assumptions: Sequence[Assumption], *, is_brief: bool = False) -> str:
    """Return each assumption with the flag that changes it, in brief without asides and the flags' values."""
    named = {**flags(), **_EITHER}
    said = {each.text: named.get(each.field, each.field) for each in assumptions}
    if is_brief:
        said = {
            _ASIDE.sub("", text): ", ".join(_FLAG.findall(flag)) or flag
            for text, flag in said.items()
        }
    return "; ".join(f"{text} ({flag})" for text, flag in said.items())


def recommendation(job: Job, candidate: Candidate, *, has_files: bool = True) -> str:
    """Return the plan in one sentence; one that nothing writes is not said to be trained."""
    how = f"in {stack_text(job)} with {layout_text(candidate.strategy, job)}"
    if not has_files:
        return f"Best on paper for {subject(job)} on {cluster_text(job)}: {how}; it has no files."
    return f"Train {subject(job)} on {cluster_text(job)} {how}."


def stack_text(job: Job) -> str:
    """Return the framework, with what is switched on in it: "torch (compiled, fused loss)"."""
    recipe = job.recipe
    switched = {"compiled": recipe.compile, f"{recipe.loss} loss": job.loss is not None}
    words = ", ".join(name for name, is_on in switched.items() if is_on)
    return f"{job.framework.name} ({words})" if words else job.framework.name


def subject(job: Job) -> str:
    """Return what is trained: the model, or adapters beside it; before it what on, where that is pairs."""
    lora, of_pairs = job.recipe.lora, _POST_TRAINING.get(str(job.recipe.job), "")
    if lora is None:
        return f"{of_pairs}{job.model.name}"
    base = f" beside {lora.base_bits}-bit weights" if lora.is_quantised else ""
    return f"{of_pairs}LoRA adapters of rank {lora.rank}{base} of {job.model.name}"


def cluster_text(job: Job) -> str:
    """Return the cluster as 'M nodes x N GPUs = W'."""
    cluster = job.cluster
    nodes = f"{cluster.nodes:,} node{'s' if cluster.nodes > 1 else ''}"
    gpus = format_gpus(cluster.world_size)
    return f"{nodes} x {cluster.gpus_per_node} {cluster.gpu.name} = {gpus}"


def layout_text(strategy: Layout, job: Job) -> str:
    """Return a layout of a job in words, with the batch arithmetic."""
    ranks = strategy.data_parallel_size
    name = ", ".join(techniques(strategy, job.framework)) or "no parallelism"
    micro_batch, steps = strategy.micro_batch_size, strategy.gradient_accumulation_steps
    batch = format_samples(micro_batch * steps * ranks, job.sample)
    return (
        f"{name}, micro-batch {micro_batch} x {steps} accumulation x {format_ranks(ranks)}"
        f" = {batch} per step"
    )


def recompute_text(s: Layout) -> str:
    """Return what is recomputed: its kind, and the modules that are named."""
    modules = names_of(s.recompute_modules)
    return f"{s.recompute} ({', '.join(modules)})" if modules else str(s.recompute)


def techniques(s: Layout, framework: Framework) -> list[str]:
    """Return the name of everything that a layout does beyond plain training."""
    family = FAMILY_NAMES[DATA_NAMES[s.zero_stage]]
    if not framework.sharding.gathers_blocks:
        family = family.partition(" (")[0]
    chunks = f", {s.virtual_pipeline_size} chunks each" if s.virtual_pipeline_size > 1 else ""
    given = s.expert_tensor_parallel_size
    shares = f" (each over {given} rank{'s' * (given > 1)})" if given else ""
    more = {
        "tensor": " with sequence parallelism" if s.sequence_parallel else "",
        "pipeline": f" ({s.pipeline_schedule}{chunks})",
        "expert": shares,
    }
    wanted = {
        family: s.data_parallel_size * s.context_parallel_size > 1 or s.offloads_optimizer,
        f"{s.data_parallel_replicate_size} replicas of the shards": (
            s.zero_stage > 0 and s.data_parallel_replicate_size > 1
        ),
        **{
            f"{dimension.name} parallel {s.size(dimension)}{more.get(dimension.name, '')}": bool(
                s.uses(dimension)
            )
            for dimension in DIMENSIONS
        },
        f"{recompute_text(s)} activation recompute": s.recompute != Recompute.NONE,
        f"local SGD, averaged every {s.synchronize_every} steps": s.synchronize_every > 1,
        offload_words(s): s.offloads_optimizer,
    }
    return [name for name, holds in wanted.items() if holds]


def offload_words(s: Layout) -> str:
    """Return what waits in host memory, as a technique."""
    return f"offload of {str(s.offload).replace('+', ' and ')}"


def total_figures(job: Job, candidate: Candidate, *, least: float = 0.0) -> tuple[Figure, ...]:
    """Return memory of a GPU, time of a step, and where they say something, exchanges, ranks and the run.

    Args:
        job: what is trained.
        candidate: its layout.
        least: share of the step from which communication is told.
    """
    figures = (
        memory_figure(job, candidate),
        time_figure(job, candidate),
        communication_figure(candidate, least),
        _ranks_figure(job),
        run_figure(job, candidate),
    )
    return tuple(figure for figure in figures if figure is not None)


def speed_of(job: Job, candidate: Candidate) -> float:
    """Return what all GPUs train on in a second: images of a model that reads them, else tokens."""
    step_time = candidate.step_time
    if job.model.reads_images:
        return job.recipe.global_batch_size / float(step_time.step_seconds)
    return float(step_time.tokens_per_second_per_gpu) * job.cluster.world_size


def speed_unit(job: Job) -> str:
    """Return what `speed_of` counts."""
    return "images/s" if job.model.reads_images else "tokens/s"


def time_figure(job: Job, candidate: Candidate) -> Figure:
    """Return what a step takes, and what that makes of the GPUs."""
    step_time = candidate.step_time
    padding = job.recipe.padding_share
    without = f" without the padding, {format_fraction(padding)} of all" if padding else ""
    return Figure(
        label="Speed",
        amount=format_seconds(step_time.step_seconds),
        rest="per step"
        f" ({format_seconds(step_time.low_seconds)} to {format_seconds(step_time.high_seconds)}),"
        f" {format_count(speed_of(job, candidate))} {speed_unit(job)}{without},"
        f" {format_fraction(step_time.model_flops_utilization)} MFU",
    )


def communication_figure(candidate: Candidate, least: float = 0.0) -> Figure | None:
    """Return what communication costs of a step: what waits for it, and what it slows.

        costs = exposed (reduction, gather, hand-overs, sums inside layers) + slowed compute

    None where it costs nothing, as on one GPU, or less of the step than the least.
    """
    amounts = {term.name: float(term.amount) for term in candidate.step_time.terms}
    costs = sum(amounts.get(name, 0.0) for name in COMMUNICATION)
    share = costs / float(candidate.step_time.step_seconds)
    if not costs or share < least:
        return None
    slowed = amounts.get(StepTerm.OVERLAP_SLOWDOWN, 0.0)
    parts = [f"{format_seconds(costs - slowed)} of waiting"] if costs > slowed else []
    parts += [f"{format_seconds(slowed)} of slower compute"] if slowed else []
    return Figure(
        label="",
        amount="",
        rest=f"communication adds {format_seconds(costs)}"
        f" ({format_fraction(share) if share >= _LEAST_SHARE else 'under 1 %'}):"
        f" {', '.join(parts)}",
    )


def run_figure(job: Job, candidate: Candidate) -> Figure | None:
    """Return the run that the recipe's tokens make, where it names any."""
    run = training_run(job, candidate.step_time)
    if run is None:
        return None
    starting = f", {format_duration(run.start_up_seconds)} of them before the first step"
    starting = starting if run.start_up_seconds > _NOTABLE_START * run.seconds else ""
    price = f", ${format_sum(run.usd)} on demand ({run.price_date})" if run.usd else ""
    return Figure(
        label="Run",
        amount=f"{format_count(run.tokens)} tokens",
        rest=f"in {format_steps(run.steps)}:"
        f" {format_duration(run.seconds)} ({format_duration(run.low_seconds)} to"
        f" {format_duration(run.high_seconds)}){starting}, {format_sum(run.gpu_hours)} GPU-hours{price}",
    )


def _ranks_figure(job: Job) -> Figure | None:
    order = cuda_visible_devices(job.cluster.gpu_order)
    if not order:
        return None
    rest = f"CUDA_VISIBLE_DEVICES={order}: neighbours on the fastest links"
    return Figure(label="Ranks", amount="", rest=rest)


def ledgers_text(
    candidate: Candidate, terminal: Terminal, time: str = "Time of one optimizer step"
) -> tuple[str, str]:
    """Return the ledgers of a layout's memory and of its step, under the title that says what the time is of."""
    return memory_ledger_text(candidate.memory, terminal), ledger_text(
        time, candidate.step_time.terms, format_seconds, terminal
    )


def memory_ledger_text(memory: Memory, terminal: Terminal, stage: str = "") -> str:
    """Return the ledger of one GPU's memory, under the stage if that is to be said and the moment of its peak."""
    title = f"Memory of one GPU at its peak ({stage}{PHASES[int(memory.phase)]})"
    return ledger_text(title, memory.terms, format_bytes, terminal)


def ledger_text(
    title: str, terms: Collection[Term], unit: Callable[[Amount], str], terminal: Terminal
) -> str:
    """Return one line per term that is not zero: name, amount, arithmetic; then the total."""
    rows = [(t.name.replace("_", " "), unit(t.amount), t.how) for t in terms if float(t.amount)]
    rows.append(("total", unit(total(terms)), ""))
    names = max(len(name) for name, _, _ in rows)
    amounts = max(len(amount) for _, amount, _ in rows)
    lines = (
        terminal.paragraph(
            how, first=f"  {name:<{names}}  {amount:>{amounts}}  ", rest=" " * (names + amounts + 6)
        )
        for name, amount, how in rows
    )
    return "\n".join((terminal.bold(title), *lines))


def sizes_text(s: Layout) -> str:
    """Return the sizes above 1 in short, such as `dp 4 tp 8 pp 2 (1f1b)`; HSDP as replicas x shards."""
    data = (
        f"{s.data_parallel_replicate_size}x{s.data_parallel_shard_size}"
        if s.is_hybrid
        else str(s.data_parallel_size)
    )
    named = [f"dp {data}"] if s.data_parallel_size > 1 else []
    named += [
        f"{dimension.short_name} {s.size(dimension)}"
        for dimension in DIMENSIONS
        if s.uses(dimension)
    ]
    if s.pipeline_parallel_size > 1:
        chunks = f" x{s.virtual_pipeline_size}" if s.virtual_pipeline_size > 1 else ""
        named.append(f"({s.pipeline_schedule}{chunks})")
    return " ".join(named) or "-"


class Verdict(StrEnum):
    """Whether a layout leaves room to spare."""

    FITS = "fits"
    TIGHT = "tight"
    DOES_NOT_FIT = "does not fit"


_LABELS = {Verdict.FITS: "Fits", Verdict.TIGHT: "Tight", Verdict.DOES_NOT_FIT: "Too big"}


def verdict(job: Job, candidate: Candidate) -> Verdict:
    """Return whether a layout fits, and whether its range does."""
    if not candidate.fits:
        return Verdict.DOES_NOT_FIT
    is_tight = not candidate.is_comfortable or float(candidate.memory.high_bytes) > job.usable_bytes
    return Verdict.TIGHT if is_tight else Verdict.FITS


def memory_figure(job: Job, candidate: Candidate) -> Figure:
    """Return what the layout reserves of one GPU."""
    memory = candidate.memory
    found = verdict(job, candidate)
    return Figure(
        label=_LABELS[found],
        amount=format_bytes(memory.reserved_bytes),
        rest=f"of {format_bytes(job.usable_bytes)} on each GPU"
        f" ({format_bytes(memory.low_bytes)} to {format_bytes(memory.high_bytes)})"
        f"{_room(job, candidate)}",
        tone=found,
    )


def _room(job: Job, candidate: Candidate) -> str:
    """Return by how much a layout does not fit, or may not; "" where it has room."""
    memory, usable = candidate.memory, job.usable_bytes
    left = format_bytes(abs(usable - float(memory.reserved_bytes)))
    if not candidate.fits:
        return f": {left} too much{unsure_text(memory, usable)}"
    over = float(memory.high_bytes) - usable
    if over > 0:
        return f": {left} free, but it may need {format_bytes(over)} more than there is"
    return "" if candidate.is_comfortable else f": {left} free"


def unsure_text(memory: Memory, usable_bytes: float) -> str:
    """Return that what is too large for a card may fit it, where the low end of its range does."""
    is_unsure = float(memory.low_bytes) <= usable_bytes < float(memory.reserved_bytes)
    return ", though the low end would fit" if is_unsure else ""
