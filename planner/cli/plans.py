"""Commands that plan: suggest, estimate, memory and replicas."""

import json
import sys
from pathlib import Path
from shlex import join
from typing import Any

import click

from planner.cli.numbers import NamedPath
from planner.cli.options import (
    JobCommand,
    build_request,
    goal_options,
    job_options,
    read_machine_option,
)
from planner.cli.output import EXIT_NOTHING_FITS, busy, color, say, say_kept, terminal
from planner.cli.request_lines import batch_option, check_alone, print_estimates, print_suggestions


@click.command(cls=JobCommand)
@click.argument("model", required=False)
@job_options
@click.option(
    "--out", type=NamedPath(file_okay=False), help="Write the recommended target's files there."
)
@click.option(
    "--force",
    is_flag=True,
    help="Replace the plan in the folder of --out; what you edited stays as NAME.orig.",
)
@click.option(
    "--lock", is_flag=True, help="Write plan.lock.json there, or here: `check --locked` holds it."
)
@click.option("--verbose", "-v", is_flag=True, help="Print the whole plan, not its first screen.")
@goal_options
@batch_option
def suggest(
    model: str,
    out: str | None,
    batch: Any,
    *,
    force: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Recommend a strategy for MODEL, and explain it.

    With --batch, for every line: --out then has a folder for each id.
    """
    check_alone()
    of_files = {"--force": force, "--target": flags["targets"], "--launcher": flags["launchers"]}
    given = [name for name, value in of_files.items() if value]
    if given and out is None and not flags["lock"]:
        said = "changes" if len(given) == 1 else "change"
        say([f"{', '.join(given)} {said} nothing without --out or --lock: no file is written"])
    if batch is not None:
        print_suggestions(batch, out, read_machine_option(flags["machine"]), force=force)
        return
    from planner import answers

    request = build_request(model, flags)
    with busy("looking at layouts"):
        resolved, plan = answers.suggest(request, allow_paths=True)
    say(resolved.notes)
    if not as_json:
        _print_plan(request, resolved, plan, asks_for_files=out is not None, flags=flags)
    if out is not None:
        from planner.generate.write_bundle import write_bundle

        answer = answers.answer_plan(resolved, plan, request.id)
        say_kept(write_bundle(Path(out), plan, answer, request.files, force=force))
        click.echo(f"wrote {out}: read {Path(out) / 'README.md'} first", err=True)
    if flags["lock"]:
        _lock(request, resolved, plan, out, force=force)
    if as_json:
        click.echo(json.dumps(answers.answer_suggestion(request, resolved, plan), indent=2))


def _lock(request: Any, resolved: Any, plan: Any, out: str | None, *, force: bool) -> None:
    """Write the lock of a plan beside its launch files, or into this folder."""
    from planner import answers
    from planner.gate.lock import write_lock

    answer = answers.answer_plan(resolved, plan, request.id)
    path = write_lock(None if out is None else Path(out), request, plan, answer, force=force)
    command = join(["planner", "check", str(path), "--locked"])
    click.echo(f"wrote {path}: commit it, and `{command}` holds it", err=True)


def _print_plan(
    request: Any, resolved: Any, plan: Any, *, asks_for_files: bool, flags: dict[str, Any]
) -> None:
    """Print the first screen, with --verbose the whole plan, or with --why the answer to that."""
    from planner import answers
    from planner.accuracy.evidence import evidence_table, nearest_evidence
    from planner.advice.why_not import why_text
    from planner.report.first_screen import first_screen
    from planner.report.plan import plan_text
    from planner.report.values import table_text

    if request.why is not None:
        click.echo(why_text(answers.ask_why(request, plan), flags["why"]))
        return
    words = [word for word in sys.argv[1:] if word not in {"-v", "--verbose"}]
    command = "" if asks_for_files else join(["planner", *words])
    text = plan_text if flags["verbose"] else first_screen
    click.echo(text(plan, resolved.assumptions, command, terminal()), nl=False, color=color())
    near = nearest_evidence(plan.job, plan.chosen) if flags["verbose"] and not plan.rollout else ()
    if near:
        click.echo("\n" + table_text(evidence_table(near), terminal()), color=color())


@click.command(cls=JobCommand)
@click.argument("model", required=False)
@job_options
@batch_option
def estimate(model: str, batch: Any, *, as_json: bool, **flags: Any) -> None:
    """Estimate memory and step time of one layout of MODEL.

    Or of every line of a --batch. Exits 3 where the layout does not fit.
    """
    check_alone()
    if batch is not None:
        print_estimates(batch, read_machine_option(flags["machine"]))
        return
    from planner import answers
    from planner.advice.layout_findings import layout_findings
    from planner.report.estimate import estimate_text

    request = build_request(model, flags)
    if as_json:
        answer = answers.answer_estimate(request, allow_paths=True)
        click.echo(json.dumps(answer, indent=2))
        _exit_unless(fits=answer["fits"])
        return
    resolved, candidate = answers.estimate_request(request, allow_paths=True)
    say(resolved.notes)
    findings = layout_findings(resolved.job, candidate)
    text = estimate_text(resolved.job, candidate, resolved.assumptions, findings, terminal())
    click.echo(text, nl=False, color=color())
    _exit_unless(fits=candidate.fits)


def _exit_unless(*, fits: bool) -> None:
    """End with the contract's code where the layout does not fit: the answer was printed."""
    if not fits:
        sys.exit(EXIT_NOTHING_FITS)


@click.command(cls=JobCommand)
@click.argument("model")
@job_options
def memory(model: str, *, as_json: bool, **flags: Any) -> None:
    """Show where the memory of MODEL goes, and what would fit.

    Without a strategy, the one that `suggest` recommends is shown.
    """
    from planner import answers
    from planner.report.memory import memory_text

    request = build_request(model, flags)
    resolved, candidate = answers.memory_request(request, allow_paths=True)
    say(resolved.notes)
    if as_json:
        click.echo(json.dumps(answers.answer_memory(resolved.job, candidate), indent=2))
        return
    text = memory_text(resolved.job, candidate, resolved.assumptions, terminal())
    click.echo(text, nl=False, color=color())


@click.command(cls=JobCommand)
@click.argument("model")
@job_options
def replicas(model: str, *, as_json: bool, **flags: Any) -> None:
    """Compare ways to train a whole MODEL on each GPU: DDP, nn.DataParallel, local SGD.

    Each against one GPU, in samples per second; with --samples or --tokens also how many averages of
    local SGD are left. Exits 3 where a replica does not fit.
    """
    from planner.answers.replicas import answer_replicas, replicas_request
    from planner.report.replicas import replicas_text

    resolved, found = replicas_request(build_request(model, flags), allow_paths=True)
    if as_json:
        click.echo(json.dumps(answer_replicas(resolved, found), indent=2))
    else:
        say(resolved.notes)
        click.echo(replicas_text(found, resolved.assumptions, terminal()), color=color())
    if not found.candidate.fits:
        sys.exit(EXIT_NOTHING_FITS)
