"""The command that runs the few best plans and keeps the winner: race."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from click.core import ParameterSource

from planner.cli.numbers import FiniteRange, NamedPath
from planner.cli.options import JobCommand, build_request, goal_options, job_options, typed_flag
from planner.cli.output import EXIT_BROKEN, busy, color, say, say_kept, terminal
from planner.core.errors import InvalidInputError

_STOPPED = 130
_OWN = {
    *("model", "most", "minutes", "out", "force", "on_cpus", "output", "as_json"),
    *("launchers", "launcher", "hosts"),
}
"""Parameters that say nothing of the job."""


@click.command(cls=JobCommand)
@click.argument("model", metavar="MODEL|DIR")
@job_options
@click.option("--most", type=click.IntRange(2, 16), default=4, show_default=True, help="Plans.")
@click.option(
    "--minutes",
    type=FiniteRange(0.1, 1440),
    default=10,
    show_default=True,
    help="Budget for all plans together.",
)
@click.option("--out", type=NamedPath(file_okay=False), help="Write the winner's files there.")
@click.option("--force", is_flag=True, help="Replace the plan in the folder of --out.")
@click.option("--cpu", "on_cpus", is_flag=True, help="Run smaller copies on this machine's cores.")
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    help="Add what was measured to that machine.json, or begin one.",
)
@click.option(
    "--launcher",
    metavar="NAME",
    help="Start each plan as a job of its own: slurm, or ssh on --hosts.",
)
@click.option(
    "--hosts",
    metavar="NAMES",
    help="Of --launcher ssh: where the nodes are, such as me@node0,me@node1.",
)
@goal_options
def race(
    model: str, out: str | None, output: str | None, *, force: bool, as_json: bool, **flags: Any
) -> None:
    """Run the few best plans of MODEL here, and keep the winner.

    Plans whose order is in doubt are run until the fastest is known, or those in DIR. --launcher slurm or ssh
    starts each as a job of its own. Exits 4 where none takes a step.
    """
    from planner.generate.folder import refuse_filled, refuse_unwritable
    from planner.race.results import race_answer, race_text
    from planner.race.start import chosen_way

    way: Any = chosen_way(flags["launcher"], flags["hosts"])
    if out is not None:
        refuse_filled(Path(out), force=force)
        refuse_unwritable(Path(out))
    with _scratch(way) as scratch:
        entrants, request = _entrants(model, {**flags, "launchers": way.launcher or None}, scratch)
        known = _known(output, entrants, request)
        on_cpus = flags["on_cpus"] or any(each.planned.is_of_cpus for each in entrants)
        standings, is_stopped = _run(entrants, flags["minutes"], replace(way, on_cpus=on_cpus))
        is_comparable = not on_cpus or all(each.planned.is_of_cpus for each in entrants)
        answer = race_answer(standings, is_stopped=is_stopped, is_comparable=is_comparable)
        if as_json:
            click.echo(json.dumps(answer, indent=2))
        else:
            click.echo(race_text(answer, terminal()), color=color())
            say([way.trial] if way.trial and answer["winner"] is None else [])
        try:
            _keep(standings, answer, out, force=force)
        finally:  # a full disk for the one leaves the other
            if output is not None:
                _grow(output, known, standings, is_comparable=is_comparable)
    if is_stopped:
        sys.exit(_STOPPED)
    if answer["winner"] is None:
        sys.exit(EXIT_BROKEN)


@contextmanager
def _scratch(way: Any) -> Iterator[Path]:
    """Make a folder for the plans: where jobs start them, in the one that one is in, which the nodes see."""
    within = Path.cwd() if way.launcher else None
    if within is not None and not os.access(within, os.W_OK):
        raise InvalidInputError(
            "the plans of jobs are written into this folder, which cannot be written",
            hint="start the race in a folder that is yours, and that every node sees",
        )
    with TemporaryDirectory(prefix="planner-race-", dir=within) as made:
        yield Path(made)


def _entrants(given: str, flags: dict[str, Any], scratch: Path) -> tuple[Any, Any]:
    """Return the plans, and the request that they are of; None for folders."""
    from planner.race.entrants import entrants_of_folder, entrants_of_request, has_plans
    from planner.race.small import smaller

    if has_plans(given):
        _check_flags(flags, given)
        launcher = flags["launchers"] or ""
        return entrants_of_folder(given, flags["most"], scratch, launcher), None
    request = build_request(given, flags)
    if flags["on_cpus"]:
        request, copy = smaller(request)
        say(copy)
    with busy("looking at layouts"):
        return entrants_of_request(request, flags["most"], scratch), request


def _check_flags(flags: dict[str, Any], folder: str) -> None:
    """Refuse flags of a job where its plans are there already."""
    context = click.get_current_context()
    given = [
        typed_flag(context, each)
        for each in context.command.params
        if each.name in flags.keys() - _OWN
        and context.get_parameter_source(each.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        from planner.catalog import records

        known = records.model(folder)
        verb = "is" if len(given) == 1 else "are"
        raise InvalidInputError(
            f"./{folder} is a folder of plans here" if known else f"{folder} is a folder of plans",
            hint=f"{', '.join(given)} {verb} of planning a model: "
            + (f"{known.id} names the model" if known else "planner race MODEL ... plans anew"),
            field=given[0],
        )


def _known(output: str | None, entrants: Sequence[Any], request: Any) -> Any:
    """Return the machine that what is measured is added to, once it is known that it can be."""
    from planner.race.keep import machine_to_grow

    if output is None:
        return None
    return machine_to_grow(output, entrants[0].planned.gpu, request.machine if request else None)


def _run(entrants: Sequence[Any], minutes: float, way: Any) -> Any:
    """Say what the race may gain and take, and run it."""
    from planner.race.results import left_out_lines, progress_line
    from planner.race.rounds import Race, run_all
    from planner.race.start import check_time, check_way, worth

    able = [each for each in entrants if not each.missing]
    say(left_out_lines(entrants))
    budget = 60.0 * minutes
    check_way(able, way)
    check_time(able, budget)
    say([worth(able, budget)])
    is_terminal = sys.stderr.isatty()

    def show(standing: Any, seconds: Sequence[float]) -> None:
        if is_terminal:
            line = progress_line(standing, seconds)
            click.echo(f"\r\x1b[K{line[: terminal().width - 1]}", nl=False, err=True)

    def waits(standing: Any, why: str) -> None:
        clear = "\r\x1b[K" if is_terminal else ""
        click.echo(f"{clear}{standing.entrant.name}: {why}; its time has not begun", err=True)

    race = Race(budget_seconds=budget, way=way, show=show, waits=waits)
    found = run_all(entrants, race)
    if is_terminal:
        click.echo("\r\x1b[K", nl=False, err=True)
    return found


def _keep(
    standings: Sequence[Any], answer: dict[str, Any], out: str | None, *, force: bool
) -> None:
    """Write the winner's files."""
    from planner.race.keep import write_winner

    winner = next((each for each in standings if each.entrant.name == answer["winner"]), None)
    if out is None or winner is None:
        return
    say_kept(write_winner(Path(out), winner, answer, force=force))
    click.echo(f"wrote {out}: read {Path(out) / 'README.md'} first", err=True)


def _grow(file: str, known: Any, standings: Sequence[Any], *, is_comparable: bool) -> None:
    from planner.race.keep import grow

    runs = grow(file, known, standings) if is_comparable else 0
    if runs:
        say([f"{file} has {runs} run{'s'[: runs > 1]} now: give it to suggest as --machine"])
    else:
        say([f"{file} stays as it was: no run says anything of the plans' machine"])
