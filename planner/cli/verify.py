"""The command that compares a run with its plan: verify."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from planner.cli.output import EXIT_BROKEN, color, say, terminal
from planner.core.errors import InvalidInputError

if TYPE_CHECKING:
    from planner.verify.planned import Planned

_FORMATS = ("text", "json", "markdown")
_HERE = 3
"""Folders above a log in which its plan.json is looked for."""


@click.command()
@click.argument("given", metavar="DIR|LOG")
@click.option(
    "--plan", metavar="DIR|FILE", help="Plan of the LOG; else the plan.json beside it or above it."
)
@click.option("--trace", metavar="FILE", help="Profiler's trace of the run: tells where time went.")
@click.option(
    "--steps",
    type=click.IntRange(3, 10_000),
    default=20,
    show_default=True,
    help="Optimizer steps to run a DIR for.",
)
@click.option("--target", metavar="NAME", help="Which launch.sh of a DIR; the first that there is.")
@click.option(
    "--cpu", "on_cpus", is_flag=True, help="Run a DIR on CPUs; a plan for CPUs is, anyway."
)
@click.option("--append", metavar="FILE", help="Add the run to that machine.json, or begin one.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(_FORMATS),
    default="text",
    show_default=True,
    help="How to print it.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def verify(given: str, format_name: str, *, as_json: bool, **flags: Any) -> None:
    """Compare a run with its plan.

    The launch files in DIR are run for a few steps, or the LOG of a run is read.

    It passes at 95 % of the planned speed, with no more memory than planned. Exits 4 where it
    does not pass, 2 where the log or the plan cannot be read.
    """
    from planner.verify.formats import as_json as json_of
    from planner.verify.formats import as_markdown, as_text

    verdict = _verdict(given, flags)
    name = "json" if as_json else format_name
    if name == "text":
        click.echo(as_text(verdict, terminal()), color=color())
    else:
        click.echo(json_of(verdict) if name == "json" else as_markdown(verdict))
    if flags["append"]:
        _append(flags["append"], verdict)
    if verdict.passed is False:
        sys.exit(EXIT_BROKEN)


def _verdict(given: str, flags: dict[str, Any]) -> Any:
    from planner.calibrate.logs.reading import read_log, read_log_bytes
    from planner.verify.judge import judge
    from planner.verify.run import Length, run_bundle

    trace = read_log(flags["trace"]) if flags["trace"] else None
    if trace is not None and trace.busy is None:
        raise InvalidInputError(
            f"{flags['trace']} has no steps or no kernels of a GPU",
            hint="--profile of the launch files writes such traces",
            field="--trace",
        )
    if not _is_folder(given):
        _check_flags(flags)
        reading = read_log(given)
        return judge(_planned(given, flags), reading, trace)
    planned = _planned(given, flags)
    raw = run_bundle(
        planned,
        Length(steps=flags["steps"]),
        target=flags["target"],
        on_cpus=flags["on_cpus"] or planned.is_of_cpus,
        show=lambda line: click.echo(line, err=True),
    )
    return judge(planned, read_log_bytes(given, raw), trace)


def _planned(given: str, flags: dict[str, Any]) -> "Planned":
    """Return the plan, once it is known that its run can be added where that is asked for."""
    from planner.verify.machine_file import machine_for
    from planner.verify.planned import read_planned

    plan = flags["plan"]
    if _is_folder(given):
        planned = read_planned(given)
    else:
        planned = read_planned(plan, field="--plan") if plan else read_planned(_plan_of(given))
    if flags["append"]:
        machine_for(flags["append"], planned)
    return planned


def _check_flags(flags: dict[str, Any]) -> None:
    """Refuse flags of running a folder where a log is read."""
    source = click.get_current_context().get_parameter_source
    given = [
        f"--{'cpu' if name == 'on_cpus' else name}"
        for name in ("steps", "target", "on_cpus")
        if name in flags and source(name) not in {ParameterSource.DEFAULT, None}
    ]
    if given:
        raise InvalidInputError(
            f"{' and '.join(given)}: of running a folder, and this is a log",
            hint="planner verify DIR runs the launch files of DIR",
            field=given[0],
        )


def _is_folder(given: str) -> bool:
    try:
        return Path(given).is_dir()
    except (OSError, ValueError):
        return False


def _plan_of(log: str) -> str:
    try:
        above = Path(log).resolve().parents[:_HERE]
        found = next((each / "plan.json" for each in above if (each / "plan.json").is_file()), None)
    except (OSError, ValueError):
        found = None
    if found is None:
        raise InvalidInputError(
            "there is no plan.json beside the log or above it",
            hint="--plan DIR, the folder of launch files, or a plan.json",
            field="--plan",
        )
    return str(found)


def _append(file: str, verdict: Any) -> None:
    """Add the run to a machine.json."""
    from planner.calibrate.from_logs import check_gpu
    from planner.verify.machine_file import append_run

    if verdict.run is None or (verdict.reading.gpu == "cpu" and not verdict.planned.is_of_cpus):
        say([f"{file} stays as it was: the run says nothing of the plan's machine"])
        return
    check_gpu(verdict.reading, verdict.run)
    runs = append_run(file, verdict.planned, verdict.run)
    say([f"{file} has {runs} run{'s' if runs > 1 else ''} now"])
