"""The way of `planner calibrate` that measures: its flags, and the machine that it makes."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from planner.cli.numbers import FiniteRange
from planner.core.errors import InvalidInputError, PlannerError
from planner.core.frozen import frozen
from planner.request.amounts import read_length

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--measure", is_flag=True, help="Measure this machine's GPUs; needs PyTorch."),
    click.option(
        "--model",
        "models",
        multiple=True,
        default=("gpt2",),
        show_default=True,
        help="Whose layers to measure, without --layout; may be repeated.",
    ),
    click.option("--seq-len", metavar="N", default="", help="Of attention; default: the model's."),
    click.option("--gpus", type=click.IntRange(1, 1024), default=1, help="That measure together."),
    click.option("--nodes", type=click.IntRange(1, 65536), default=1, help="Beyond 1: says how."),
    click.option(
        "--dtype",
        "dtypes",
        multiple=True,
        type=click.Choice(["bf16", "fp16", "tf32", "fp32"]),
        help="Of matmuls; may be repeated. Default: bf16, and fp32 on CPUs.",
    ),
    click.option("--budget", type=FiniteRange(5, 7200), default=180, help="Seconds in all."),
    click.option("--cpu", is_flag=True, help="Measure cores in place of GPUs, one a process."),
    click.option(
        "--step/--no-step",
        "has_step",
        default=True,
        help="Whether to train the first model for a few real steps at the end.",
    ),
)
_OF_STEPS = 0.4
"""Of the budget, for real steps."""
_LONGEST = 4096
"""Tokens of a sequence that attention is measured at, where none is named."""
_CPU_TOKENS = (256, 1024)


@frozen
class Subject:
    """A model whose layers are measured."""

    name: str
    model: Any
    """As a request has it."""
    sequence_length: int
    tasks: Any


def measure_options(command: F) -> F:
    """Add the flags of measuring to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def measured(flags: dict[str, Any]) -> Any:
    """Return the machine as measured here, with the runs of the file that --machine names."""
    from planner.calibrate.measure.start import command_of_each_node, measure_here, program_words
    from planner.calibrate.measure.tasks import joined, write_tasks
    from planner.machine.reading import read_machine

    found = [*subjects(flags)]
    tasks = joined([each.tasks for each in found])
    if flags["nodes"] > 1:
        file = Path("tasks.json")
        write_tasks(tasks, file)
        program = program_words(file, Path("machine.json"), flags["budget"], flags["name"])
        line = command_of_each_node(
            program, nodes=flags["nodes"], processes=flags["gpus"], is_cpu=flags["cpu"]
        )
        raise InvalidInputError(
            f"several nodes measure together: start this on each of them, from a folder that has {file}",
            hint=f"{line}; HOST is the first node",
            field="--nodes",
        )
    known = read_machine(flags["machine"]) if flags["machine"] else None
    end = time.monotonic() + flags["budget"]
    machine = measure_here(
        tasks,
        processes=flags["gpus"],
        budget_seconds=flags["budget"] * (1 - _OF_STEPS * flags["has_step"]),
        is_cpu=flags["cpu"],
        name=flags["name"],
    )
    runs = () if known is None else known.runs
    if flags["has_step"]:
        runs = (*runs, *_real_steps(machine, found[0], end - time.monotonic()))
    return replace(machine, runs=runs)


def _real_steps(machine: Any, subject: Subject, seconds: float) -> Sequence[Any]:
    """Return a run of a model here; none where it fails, which is said."""
    from planner.verify.real_step import real_step

    try:
        run = real_step(
            machine,
            subject.model,
            sequence_length=subject.sequence_length,
            seconds=seconds,
            show=partial(click.echo, err=True),
        )
    except PlannerError as error:
        click.echo(f"left out: real steps of {subject.name}: {error.message}", err=True)
        return ()
    return (run,)


def subjects(flags: dict[str, Any]) -> Iterator[Subject]:
    """Yield what is measured: the shapes of layouts, where some are given, else those of models."""
    if flags["layout"]:
        yield from (_of_layout(text, flags) for text in flags["layout"])
        return
    yield from (_of_model(name, flags) for name in flags["models"])


def _of_model(name: str, flags: dict[str, Any]) -> Subject:
    """Return a model by micro-batches from small to large, and by every tensor parallel size that a node has."""
    from planner.calibrate.measure.tasks import TOKENS, tasks_of
    from planner.request.model import load_model

    model, _ = load_model(name, allow_paths=True)
    longest = min(_LONGEST, model.max_position_embeddings or _LONGEST)
    length = int(read_length(flags["seq_len"])) if flags["seq_len"] else longest
    tasks = tasks_of(
        model,
        sequence_length=length,
        dtypes=flags["dtypes"] or (("fp32",) if flags["cpu"] else ("bf16",)),
        tensor_sizes=[2**power for power in range(flags["gpus"].bit_length())],
        tokens=_CPU_TOKENS if flags["cpu"] else TOKENS,
    )
    return Subject(name=name, model=name, sequence_length=length, tasks=tasks)


def _of_layout(text: str, flags: dict[str, Any]) -> Subject:
    """Return the shapes of one plan: its micro-batch, its sequences, its tensor parallel size, its dtype."""
    from planner.calibrate.measure.tasks import tasks_of
    from planner.cli.layouts import read_layout
    from planner.request.schema import parse_request, resolve
    from planner.request.strategy import requested_layout

    said = read_layout(text) or {}
    request = parse_request(said)
    job = resolve(request, allow_paths=True).job
    layout = requested_layout(request.strategy, job)
    length = job.recipe.sequence_length
    own = "fp32" if flags["cpu"] else job.precision.wide_matmul_dtype
    tasks = tasks_of(
        job.model,
        sequence_length=length,
        dtypes=flags["dtypes"] or (own,),
        tensor_sizes=(layout.tensor_parallel_size,),
        tokens=(layout.micro_batch_size * length // layout.context_parallel_size,),
    )
    return Subject(name=job.model.name, model=said["model"], sequence_length=length, tasks=tasks)
