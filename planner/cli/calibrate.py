"""Command that makes machine.json: from timed runs; each other way is one more entry of `_WAYS`.

A way is a flag of its own (`--runs FILE`; `--from LOG...` of logs; `--measure` of this machine), and a function that returns a
`Machine` with what it read added. What follows is the same for all: anchors by all runs, the file, the text.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any

import click

from planner.cli.measuring import measure_options, measured
from planner.cli.numbers import TextFile
from planner.cli.output import color, terminal
from planner.core.errors import InvalidInputError


@click.command(
    epilog="""\b
planner calibrate --runs runs.jsonl -o machine.json
planner calibrate --from run.log nccl.out --layout plan.json -o machine.json
planner calibrate --measure --model gpt2 --gpus 8
planner calibrate --show machine.json
"""
)
@click.option(
    "--runs",
    type=TextFile("r", encoding="utf-8-sig", errors="replace"),
    help="Timed runs: one JSON object a line; - is stdin.",
)
@click.option(
    "--from", "from", multiple=True, metavar="LOG...", help="Logs of runs and of nccl-tests."
)
@click.argument("more_logs", nargs=-1, metavar="")
@click.option(
    "--layout",
    multiple=True,
    metavar="PLAN|FLAGS",
    help="What the logs do not say, or whose shapes to measure: plan.json, or 'gpt2 --gpus 8 ...'; one for all, or one each.",
)
@measure_options
@click.option("--machine", metavar="FILE", help="A machine file to add to.")
@click.option("--name", default="", help="What the machine is called.")
@click.option("--show", metavar="FILE", help="Print what a machine file holds, and stop.")
@click.option(
    "--output", "-o", metavar="FILE", default="machine.json", show_default=True, help="To write."
)
@click.option("--force", is_flag=True, help="Let --output replace an existing file.")
@click.option("--json", "as_json", is_flag=True, help="Print the machine as JSON.")
def calibrate(*, show: str | None, output: str, force: bool, as_json: bool, **flags: Any) -> None:
    """Write machine.json: what your machine was measured to do.

    Other commands take it as --machine.
    """
    from planner.calibrate.anchors import anchored
    from planner.calibrate.machine_text import checks_text, machine_text
    from planner.machine.reading import read_machine
    from planner.machine.writing import machine_json, write_machine

    if show is not None:
        machine, checks = read_machine(show), None
    else:
        _check_output(output, flags, force=force)
        machine, checks = anchored(_read(flags))
        write_machine(machine, output)
    if as_json:
        click.echo(json.dumps(machine_json(machine), indent=2))
        return
    click.echo(machine_text(machine, terminal()), color=color())
    if checks is not None:
        click.echo("\n" + checks_text(machine, checks, terminal()), color=color())
        click.echo(
            f"\nwrote {output}: give it to suggest and estimate as --machine {quote(output)}"
        )


def _read(flags: dict[str, Any]) -> Any:
    given = [way for way in _WAYS if flags[way]]
    if len(given) != 1 or (flags["more_logs"] and given != ["from"]):
        ways = " or ".join(f"--{way}" + " FILE" * (way != "measure") for way in _WAYS)
        raise click.UsageError(f"say what to calibrate from: {ways}")
    machine = _WAYS[given[0]](flags)
    name = flags["name"] or machine.name
    return replace(machine, name=name, created=today())


def _check_output(output: str, flags: dict[str, Any], *, force: bool) -> None:
    """Refuse to write over what is read, and over a file that nobody said may go.

    Raises:
        InvalidInputError: says what the file is.
    """
    runs = [getattr(flags["runs"], "name", "")]
    inputs = (*runs, *flags["from"], *flags["more_logs"], *flags["layout"])
    if any(_is_same_file(output, each) for each in inputs):
        raise InvalidInputError(
            f"{output} is read here: it would be lost",
            hint="-o takes the machine file to write, such as machine.json",
            field="--output",
        )
    is_added_to = flags["machine"] and _is_same_file(output, flags["machine"])
    if force or is_added_to or not _is_file(output):
        return
    adds = f"--machine {output} adds to it, if it is a machine file; " * (not flags["machine"])
    raise InvalidInputError(
        f"{output} exists",
        hint=f"{adds}--force replaces it, -o takes another name",
        field="--output",
    )


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def _is_same_file(name: str, other: str) -> bool:
    try:
        return Path(name).samefile(other)
    except (OSError, ValueError):
        return False


def today() -> str:
    """Return the date that a machine file is made on."""
    return datetime.now(UTC).date().isoformat()


def _from_runs(flags: dict[str, Any]) -> Any:
    from planner.calibrate.runs import machine_of_runs, read_runs_file, unrepeated
    from planner.machine.reading import read_machine

    known = read_machine(flags["machine"]) if flags["machine"] else None
    runs = read_runs_file(flags["runs"])
    machine = machine_of_runs(unrepeated(runs, known), known)
    _say_repeats(len(runs), machine, known)
    return machine


def _say_repeats(given: int, machine: Any, known: Any) -> None:
    """Say how many of the runs given were there already."""
    repeats = given + (len(known.runs) if known else 0) - len(machine.runs)
    if repeats:
        click.echo(
            f"{repeats} of {given} runs given are there already: not counted twice", err=True
        )


def _from_logs(flags: dict[str, Any]) -> Any:
    """Return the machine of logs; what was read of them, and what was not, is told beside."""
    from planner.calibrate.from_logs import figures_of_logs, machine_of_logs
    from planner.calibrate.logs.reading import read_log
    from planner.cli.layouts import layouts_of
    from planner.machine.reading import read_machine

    readings = [read_log(file) for file in (*flags["from"], *flags["more_logs"])]
    known = read_machine(flags["machine"]) if flags["machine"] else None
    figures = figures_of_logs(zip(readings, layouts_of(flags["layout"], readings), strict=True))
    for line in figures.lines:
        click.echo(line, err=True)
    machine = machine_of_logs(figures, known)
    _say_repeats(len(figures.runs), machine, known)
    return machine


_WAYS = {"runs": _from_runs, "from": _from_logs, "measure": measured}
"""By flag, in the order in which they are named."""
