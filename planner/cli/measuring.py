"""The way of `planner calibrate` that measures: its flags, and the machine that it makes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from planner.cli.numbers import FiniteRange
from planner.core.errors import InvalidInputError, PlannerError
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
        help="Whose layers to measure; may be repeated.",
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


def measure_options(command: F) -> F:
    """Add the flags of measuring to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def measured(flags: dict[str, Any]) -> Any:
    """Return the machine as measured here, with the runs of the file that --machine names."""
    from planner.calibrate.measure.start import command_of_each_node, measure_here, program_words
    from planner.calibrate.measure.tasks import write_tasks
    from planner.machine.reading import read_machine

    tasks = _tasks(flags)
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
    return replace(machine, runs=(*runs, *_real_steps(machine, flags, end - time.monotonic())))


def _real_steps(machine: Any, flags: dict[str, Any], seconds: float) -> Sequence[Any]:
    """Return a run of the first model here; none where it is not wished, or fails, which is said."""
    from planner.request.model import load_model
    from planner.verify.real_step import real_step

    if not flags["has_step"]:
        return ()
    name = flags["models"][0]
    try:
        length = _length(flags, load_model(name, allow_paths=True)[0])
        run = real_step(
            machine,
            name,
            sequence_length=length,
            seconds=seconds,
            show=partial(click.echo, err=True),
        )
    except PlannerError as error:
        click.echo(f"left out: real steps of {name}: {error.message}", err=True)
        return ()
    return (run,)


def _tasks(flags: dict[str, Any]) -> Any:
    """Return what is measured of all models together."""
    from planner.calibrate.measure.tasks import TOKENS, joined, tasks_of
    from planner.request.model import load_model

    sizes = [2**power for power in range(flags["gpus"].bit_length())]
    found = []
    for name in flags["models"]:
        model, _ = load_model(name, allow_paths=True)
        tasks = tasks_of(
            model,
            sequence_length=_length(flags, model),
            dtypes=flags["dtypes"] or (("fp32",) if flags["cpu"] else ("bf16",)),
            tensor_sizes=sizes,
            tokens=_CPU_TOKENS if flags["cpu"] else TOKENS,
        )
        found.append(tasks)
    return joined(found)


def _length(flags: dict[str, Any], model: Any) -> int:
    """Return the tokens of a sequence."""
    if flags["seq_len"]:
        return read_length(flags["seq_len"])
    return int(min(_LONGEST, model.max_position_embeddings or _LONGEST))
