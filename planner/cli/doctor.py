"""The command that says why a run is slow, fails or is wrong."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import click

from planner.cli.numbers import FiniteRange
from planner.cli.output import EXIT_BROKEN, color, terminal
from planner.core.errors import InvalidInputError, PlannerError
from planner.core.files import open_file

_FORMATS = ("text", "json", "github")
_MESSAGE = 80
"""Characters of a message, which are enough to know it by."""


@click.command()
@click.argument("scripts", metavar="[SCRIPT.py...]", nargs=-1)
@click.option(
    "--error",
    "log",
    metavar="FILE",
    help="A log, or a message in a file; - is stdin. The first cause is looked for.",
)
@click.option(
    "--plan", metavar="FILE", help="With --error: a plan to compare an out-of-memory message with."
)
@click.option(
    "--times",
    metavar="N=S,...",
    help="GPUs=seconds of the whole run, such as 1=43.1,2=43.1,4=48.2.",
)
@click.option(
    "--fixed",
    type=click.Choice(["epochs", "steps"]),
    help="With --times: what the runs had in common.",
)
@click.option("--batch-per-gpu", type=click.IntRange(1, 10**9), help="With --times: of the loader.")
@click.option(
    "--global-batch-size", type=click.IntRange(1, 10**9), help="With --times: if that was fixed."
)
@click.option(
    "--start-up-seconds",
    type=FiniteRange(0, 10**6),
    help="With --times: from the launch to the first step, if measured.",
)
@click.option(
    "--loader-seconds",
    type=FiniteRange(0, 10**9),
    help="With --times: iterating the loaders alone, as the largest run did.",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(_FORMATS),
    default="text",
    show_default=True,
    help="How to print it; github: annotations of a workflow, for scripts.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def doctor(
    scripts: tuple[str, ...],
    log: str | None,
    plan: str | None,
    times: str | None,
    **run: Any,
) -> None:
    """Say why a run is slow, fails, or is wrong.

    From scripts, a log, or timings.

    A SCRIPT.py is read, never run; a fault of it that is an error exits 4.
    """
    format_name = "json" if run.pop("as_json") else run.pop("format_name")
    asked = [bool(scripts), log is not None, times is not None]
    if sum(asked) != 1:
        raise click.UsageError("give SCRIPT.py, --error FILE or --times N=S,...: one of them")
    if format_name == "github" and not scripts:
        raise click.UsageError("--format github is for scripts")
    if times is not None:
        _print_timings(times, run, as_json=format_name == "json")
    elif log is not None:
        _print_log(log, plan, as_json=format_name == "json")
    else:
        _print_faults(scripts, format_name)


def _print_timings(times: str, run: dict[str, Any], *, as_json: bool) -> None:
    from planner.doctor.answers import answer_timings
    from planner.doctor.diagnosis import diagnose
    from planner.doctor.texts import timings_text
    from planner.doctor.timings import Timings, read_times

    fixed: Literal["", "epochs", "steps"] = run["fixed"] or ""
    timings = Timings(
        seconds=read_times(times),
        fixed=fixed,
        batch_per_gpu=run["batch_per_gpu"],
        global_batch=run["global_batch_size"],
        start_up_seconds=run["start_up_seconds"],
        loader_seconds=run["loader_seconds"],
    )
    found = diagnose(timings)
    text = (
        json.dumps(answer_timings(found), indent=2) if as_json else timings_text(found, terminal())
    )
    click.echo(text, color=color())


def _print_log(log: str, plan: str | None, *, as_json: bool) -> None:
    from planner.doctor.answers import answer_log, said_lines
    from planner.doctor.messages import MOST_BYTES, diagnose_log
    from planner.doctor.texts import log_text

    found = diagnose_log(_read(log, MOST_BYTES, "--error"), log)
    more = said_lines(found, _plan_answer(plan) if plan and found.numbers else None)
    text = (
        json.dumps(answer_log(found, more), indent=2)
        if as_json
        else log_text(found, more, terminal())
    )
    click.echo(text, color=color())


def _plan_answer(file: str) -> Mapping[str, Any]:
    """Return the plan or estimate that a file, a folder or a lock holds, or that its request makes."""
    from planner import answers
    from planner.gate.documents import read_document
    from planner.request.schema import parse_request

    document = read_document(file, sys.stdin.buffer)
    if document.kind == "lock":
        return dict(document.data["answer"])
    if document.kind == "request":
        resolved, planned = answers.suggest_layout(parse_request(document.data), allow_paths=True)
        return answers.answer_plan(resolved, planned, None)
    return document.data


def _print_faults(scripts: Sequence[str], format_name: str) -> None:
    from planner.doctor.answers import answer_faults
    from planner.doctor.scripts import look_at
    from planner.doctor.scripts.reading import MOST_BYTES
    from planner.doctor.texts import faults_text, plain
    from planner.gate.ci_formats import faults_github

    faults = {file: look_at(_read(file, MOST_BYTES, "SCRIPT"), plain(file)) for file in scripts}
    if format_name == "json":
        text = json.dumps(answer_faults(faults), indent=2)
    elif format_name == "github":
        text = faults_github([fault for each in faults.values() for fault in each])
    else:
        shown = (faults_text(plain(file), each, terminal()) for file, each in faults.items())
        text = "\n\n".join(shown)
    click.echo(text, color=color())
    if any(fault.level == "error" for each in faults.values() for fault in each):
        sys.exit(EXIT_BROKEN)


def _read(file: str, most: int, field: str) -> bytes:
    """Return up to a byte more of a file, or of stdin, than is read of it.

    Raises:
        PlannerError: it cannot be read.
    """
    if not file:
        raise InvalidInputError("no file is named", hint="a file, or - for stdin", field=field)
    try:
        if file == "-":
            return sys.stdin.buffer.read(most + 1)
        with open_file(Path(file)) as opened:
            return opened.read(most + 1)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise _unreadable(file, said, field) from None


def _unreadable(file: str, said: object, field: str) -> PlannerError:
    is_message = " " in file and Path(file).suffix != ".py"
    look_up = f"planner explain {shlex.quote(file[:_MESSAGE])} looks a message up"
    return InvalidInputError(
        f"cannot read {file[:200]!r}: {said}",
        hint=look_up if is_message else "a file, or - for stdin",
        field=field,
    )
