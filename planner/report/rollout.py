"""GRPO as text: where it generates, what each phase takes and holds, which other splits there are."""

from collections.abc import Sequence

from planner.advice.rollout_setup import RolloutPlan, RolloutSetup
from planner.catalog.rollout import rollout
from planner.core.term import Term
from planner.core.units import (
    format_bytes,
    format_count,
    format_fraction,
    format_gpus,
    format_pace,
    format_seconds,
)
from planner.report.summary import Tile
from planner.report.values import Figure, Heading, ReportRow, ReportTable, Terminal
from planner.rollout.step import BETWEEN, GENERATION, HANDOVER, SCORING, TRAINING

PHASES = {
    GENERATION: "generating",
    SCORING: "log-probabilities",
    TRAINING: "training",
    HANDOVER: "handing over weights",
    BETWEEN: "rewards and switching phases",
}
"""What the phases of a step are called."""
_LEAST = 0.005
"""Of a step: a phase that takes less is left out of the line."""


def split_text(setup: RolloutSetup) -> str:
    """Return where it generates: "vLLM on the GPUs that train (8 engines)"."""
    size, engines = setup.engine.tensor_parallel_size, setup.engine.replicas
    if setup.mode == "none":
        return "transformers' generate on the GPUs that train"
    each = f" of {size} GPUs" if size > 1 else ""
    many = f"{engines} {'engine' if engines == 1 else 'engines'}{each}"
    if setup.mode == "colocate":
        return f"vLLM on the GPUs that train ({many})"
    return f"vLLM on {format_gpus(setup.generation_gpus)} more ({many})"


def rollout_figures(found: RolloutPlan) -> tuple[Figure, ...]:
    """Return what a GPU holds in each phase, how long they take, and who waits."""
    setup = found.chosen
    return (_memory(setup), _speed(setup), *_waits(setup), *_generation(setup))


def _memory(setup: RolloutSetup) -> Figure:
    usable = format_bytes(setup.job.usable_bytes)
    trains = f"{format_bytes(setup.training_bytes)} of {usable} while it trains"
    share = f"{setup.engine.share:.2f} of a card for vLLM"
    if setup.mode == "server":
        rest = f"on each of {setup.training_gpus} GPUs; {format_bytes(setup.generating_bytes)} ({share}) on each that generates"
        return Figure(label="Fits", amount=trains, rest=rest)
    if setup.mode == "none":
        rest = f"and at the most {format_bytes(setup.generating_bytes)} while it generates"
        return Figure(label="Fits", amount=trains, rest=rest)
    held = f"{format_bytes(setup.resident_bytes)} of states and {format_bytes(setup.engine.given_bytes)}, {share}"
    rest = f"and {format_bytes(setup.generating_bytes)} while it generates ({held})"
    return Figure(label="Fits", amount=trains, rest=rest)


def _speed(setup: RolloutSetup) -> Figure:
    step = setup.step
    phases = [
        f"{words} {format_seconds(step.seconds_of(name))}"
        for name, words in PHASES.items()
        if step.seconds_of(name) >= _LEAST * step.step_seconds
    ]
    likely = f"{format_seconds(step.low_seconds)} to {format_seconds(step.high_seconds)}"
    return Figure(
        label="Speed",
        amount=format_seconds(step.step_seconds),
        rest=f"per step ({likely}), {format_count(setup.tokens_per_second)} tokens/s: {', '.join(phases)}",
    )


def _waits(setup: RolloutSetup) -> tuple[Figure, ...]:
    if setup.mode != "server":
        return ()
    trains, generates = (each / setup.step.step_seconds for each in setup.idle_seconds)
    one, other = setup.training_gpus == 1, setup.generation_gpus == 1
    rest = (
        f"the {'GPU that trains waits' if one else f'{setup.training_gpus} GPUs that train wait'} {format_fraction(trains)} of a step,"
        f" the {'one that generates' if other else f'{setup.generation_gpus} that generate'} {format_fraction(generates)}"
    )
    if setup.unused_gpus:
        rest = f"{rest}; {format_gpus(setup.unused_gpus)} beside those that generate do nothing"
    return (Figure(label="Waits", amount="", rest=rest),)


def _generation(setup: RolloutSetup) -> tuple[Figure, ...]:
    generation, longest = setup.generation, setup.rollout.max_completion_length
    who = f"each {'GPU' if setup.mode == 'none' else 'engine'} writes"
    if generation.at_once == generation.sequences:
        many = f"{generation.sequences:,} completions"
        rest = f"{who} its {many} at once, the longest of {generation.steps:,} tokens"
    else:
        many = f"{generation.at_once:,} of its {generation.sequences:,} completions"
        rounds = f"{generation.steps / longest:.1f} rounds of {longest:,} tokens"
        rest = f"{who} {many} at a time, about {rounds}"
    return (Figure(label="", amount="", rest=rest),)


def rollout_tiles(found: RolloutPlan) -> tuple[Tile, ...]:
    """Return the memory of a GPU, the step and its speed at a glance."""
    setup, step = found.chosen, found.chosen.step
    usable = format_bytes(setup.job.usable_bytes)
    likely = f"likely {format_seconds(step.low_seconds)} to {format_seconds(step.high_seconds)}"
    apart = setup.mode == "server"
    return (
        Tile(
            label="Memory of a GPU",
            amount=format_bytes(setup.most_bytes),
            rest=f"of {usable}, at the most",
            trust=f"training {format_bytes(setup.training_bytes)}, generating"
            f" {format_bytes(setup.generating_bytes)}{' on other GPUs' if apart else ''}",
        ),
        Tile(
            label="Step of GRPO",
            amount=format_seconds(step.step_seconds),
            rest="from prompts to new weights",
            trust=likely,
        ),
        Tile(
            label="Speed",
            amount=format_count(setup.tokens_per_second),
            rest="tokens/s of prompts and completions",
            trust=f"published steps: {format_fraction(rollout().engine.median_error)} off in the median",
        ),
    )


def phases_table(found: RolloutPlan) -> ReportTable:
    """Return what each phase of a step takes, term by term."""
    return ReportTable(
        title="A step of GRPO",
        note=split_text(found.chosen),
        headings=(
            Heading(name="phase", is_key=True),
            Heading(name="seconds", is_number=True),
            Heading(name="how"),
        ),
        rows=tuple(
            ReportRow(cells=(_part(name, term, terms), format_seconds(term.amount), term.how))
            for name, terms in found.chosen.step.phases.items()
            for term in terms
        ),
    )


def _part(phase: str, term: Term, terms: Sequence[Term]) -> str:
    named = f": {term.name.replace('_', ' ')}" if len(terms) > 1 else ""
    return f"{PHASES[phase]}{named}"


def rollout_trust() -> Figure:
    """Return how far published steps lie from what is said."""
    record = rollout().engine
    rest = (
        f"{record.published_steps} published steps came within {format_fraction(record.median_error)} in the median;"
        f" of {record.timed_phases} that time their phases, generation within {format_fraction(record.generation_error)}"
        f" and training within {format_fraction(record.training_error)} (docs/accuracy/post_training.md)"
    )
    return Figure(label="Sure", amount="medium:", rest=rest)


def rollout_choices(found: RolloutPlan) -> list[tuple[str, str, str]]:
    """Return the other splits: their name, what is different, the flags."""
    best = found.chosen.step.step_seconds
    return [
        (
            f"vLLM on {each.generation_gpus} of the {each.all_gpus} GPUs"
            if each.mode == "server"
            else each.mode,
            f"{format_pace(each.step.step_seconds, best)}, {format_seconds(each.step.step_seconds)} per step",
            _flags(each),
        )
        for each in found.others
    ]


def _flags(setup: RolloutSetup) -> str:
    if setup.mode != "server":
        return f"--vllm-mode {setup.mode}"
    return f"--generation-gpus {setup.generation_gpus}"


def rollout_ledger(found: RolloutPlan, terminal: Terminal) -> str:
    """Return every term of a step's phases and of an engine's memory, each with its arithmetic."""
    setup = found.chosen
    lines = [
        f"{format_seconds(term.amount)}  {term.name}  {term.how}"
        for term in setup.step.terms
        if term.amount
    ]
    held = [f"{format_bytes(term.amount)}  {term.name}  {term.how}" for term in setup.held]
    folded = (terminal.paragraph(line, first="  ", rest=" " * 10) for line in (*lines, *held))
    title = terminal.bold("GRPO") + " (seconds of a step, then what an engine holds of a GPU)"
    reasons = (
        terminal.paragraph(each, first="  not run: ", rest=" " * 10) for each in found.impossible
    )
    return "\n".join((title, *folded, *reasons))
