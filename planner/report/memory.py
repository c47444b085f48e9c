"""Where the memory of one layout goes, as text: every stage, what interrupts training, what would fit."""

from collections.abc import Sequence

from planner.core.units import format_bytes, format_pace, format_percent
from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.memory.evaluation_and_checkpoint import checkpoint_peak_bytes, evaluation_peak_bytes
from planner.memory.host import estimate_host_memory
from planner.memory.phases import PHASES
from planner.parallel.adapters import trainable
from planner.parallel.partition import stage
from planner.report.estimate import verdict_text
from planner.report.layout_words import assumptions_text, memory_ledger_text
from planner.report.values import Figure, Terminal, columns_text, figures_text
from planner.request.remarks import Assumption
from planner.search.candidate import Candidate, memory_of_stages
from planner.search.largest_that_fits import (
    MOST_GPUS,
    changes_that_fit,
    fewest_gpus,
    largest_micro_batch,
    longest_sequence,
)


def memory_text(
    job: Job, candidate: Candidate, assumptions: Sequence[Assumption], terminal: Terminal
) -> str:
    """Return the whole report of one layout's memory."""
    memory, s = candidate.memory, candidate.strategy
    busiest = f"stage {int(memory.stage)}, " if s.pipeline_parallel_size > 1 else ""
    sections = [
        verdict_text(job, candidate, terminal)
        + "\n"
        + figures_text(_total_figures(job, candidate), terminal, label_width=11),
        assumptions_text(assumptions, terminal),
        _stages(job, candidate, terminal),
        memory_ledger_text(memory, terminal, busiest),
        _evaluation_and_host(job, candidate, terminal),
        _bounds(job, candidate, terminal),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _total_figures(job: Job, candidate: Candidate) -> tuple[Figure, ...]:
    memory = candidate.memory
    reserved = Figure(
        label="Reserved",
        amount=format_bytes(memory.reserved_bytes),
        rest=f"of {format_bytes(job.usable_bytes)}"
        f" per GPU ({format_bytes(memory.low_bytes)} to {format_bytes(memory.high_bytes)})",
    )
    allocated = Figure(
        label="Allocated", amount=format_bytes(memory.peak_bytes), rest="at the peak"
    )
    trained, total = trainable(job)
    if trained == total:
        return reserved, allocated
    rest = f"of {total:,} parameters ({format_percent(trained / total)})"
    return reserved, allocated, Figure(label="Trained", amount=f"{trained:,}", rest=rest)


def _stages(job: Job, candidate: Candidate, terminal: Terminal) -> str:
    """Return one line per pipeline stage; nothing without pipeline parallelism."""
    s = candidate.strategy
    if s.pipeline_parallel_size == 1:
        return ""
    rows = [("stage", "layers", "in flight", "allocated", "reserved", "at")]
    for index, memory in enumerate(memory_of_stages(job, candidate)):
        stage_share = stage(job, s, index)
        rows.append(
            (
                str(index),
                f"{stage_share.num_blocks:g}",
                f"{float(stage_share.in_flight):g}",
                format_bytes(memory.peak_bytes),
                format_bytes(memory.reserved_bytes),
                PHASES[int(memory.phase)],
            )
        )
    return f"{terminal.bold('Stages')}\n{columns_text(rows, terminal.width)}"


def _evaluation_and_host(job: Job, candidate: Candidate, terminal: Terminal) -> str:
    s = candidate.strategy
    host = estimate_host_memory(job, s)
    of_available = f" of {format_bytes(host.available_bytes)}" if host.available_bytes else ""
    whole = checkpoint_peak_bytes(job, s, is_full=True)
    rows = [
        ("evaluation", format_bytes(evaluation_peak_bytes(job, s)), "of a GPU, same batch"),
        (
            "checkpoint",
            format_bytes(checkpoint_peak_bytes(job, s, is_full=False)),
            f"of a GPU while it is saved in shards; {format_bytes(whole)} while it is saved whole",
        ),
    ]
    if host.loading.amount:
        how = f"of host memory per node{of_available}: {host.loading.how}"
        rows.append(("loading", format_bytes(host.loading.amount), how))
    if host.training_bytes:
        rows.append(
            ("offloaded", format_bytes(host.training_bytes), f"of host memory{of_available}")
        )
    return f"{terminal.bold('Beside training')}\n{columns_text(rows, terminal.width)}"


def _bounds(job: Job, candidate: Candidate, terminal: Terminal) -> str:
    """Return how far the layout reaches, and what makes it fit where it does not."""
    s = candidate.strategy
    gpus = fewest_gpus(job, s)
    rows = [
        ("micro-batch", _at_most(largest_micro_batch(job, s))),
        *_sequence_bound(job, s),
        ("GPUs", f"at least {gpus:,}" if gpus else f"not even {MOST_GPUS:,} hold it"),
    ]
    if not candidate.fits:
        rows += [
            (change.name, f"fits: {_price(change.candidate, change.slowdown)}")
            for change in changes_that_fit(job, s)
        ] or [("changes", "no single one makes it fit")]
    return f"{terminal.bold('What fits')}\n{columns_text(rows, terminal.width)}"


def _sequence_bound(job: Job, s: Layout) -> list[tuple[str, str]]:
    if job.model.reads_images:
        return []
    return [("sequence", _at_most(longest_sequence(job, s), " tokens"))]


def _at_most(largest: int, unit: str = "") -> str:
    return f"at most {largest:,}{unit} with this layout" if largest else "none fits this layout"


def _price(candidate: Candidate, slowdown: float) -> str:
    return f"{format_bytes(candidate.memory.reserved_bytes)} per GPU, step {format_pace(slowdown, 1.0)}"
