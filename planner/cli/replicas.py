"""The command that compares ways to train whole replicas."""

import json
import sys
from typing import Any

import click

from planner.cli.options import JobCommand, build_request, job_options
from planner.cli.output import EXIT_NOTHING_FITS, color, say, terminal


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
