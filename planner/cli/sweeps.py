"""The command that plans thousands: sweep."""

import json
import os
import sys
from pathlib import Path

import click

from planner.cli.numbers import NamedPath
from planner.cli.output import EXIT_MODEL, EXIT_NOTHING_FITS, EXIT_USAGE, color, terminal


@click.command()
@click.argument("sweep_file", metavar="SWEEP", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--out",
    required=True,
    type=NamedPath(dir_okay=False, path_type=Path),
    help="File of the plans: .jsonl, a line each, .csv or .parquet.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 1024),
    help="On this machine; default: one per core.",
)
@click.option("--ray", "ray_address", metavar="ADDRESS", help="Ray cluster to plan on; auto: ours.")
@click.option("--force", is_flag=True, help="Plan all again, and let --out replace a file.")
def sweep(
    sweep_file: Path, out: Path, processes: int | None, ray_address: str | None, *, force: bool
) -> None:
    """Plan every request of SWEEP, a YAML file with a grid of values, a list, or both.

    Such as grid: {model: [gpt2, bert-base-uncased], gpu: [a100, h100], gpus: 8, nodes: [1, 2, 4]}

    A sweep that was ended goes on where it ended. At its end: which cluster for each model, and
    which model for each cluster. It exits 5 where a model could not be resolved, 3 where nothing
    fits anywhere, and 0 where there is a plan.
    """
    from planner.sweep.frontier import is_all_too_large, outcome
    from planner.sweep.frontier_text import outcome_text, plans
    from planner.sweep.grid import read_sweep
    from planner.sweep.run import num_missing, run
    from planner.sweep.store import Store

    if ray_address is not None and processes is not None:
        raise click.UsageError("--processes are of this machine, --ray is a cluster: give one")
    wanted = read_sweep(sweep_file)
    store = Store(out, force=force)
    missing = num_missing(wanted, store)
    with click.progressbar(length=missing, label=plans(missing), file=sys.stderr) as bar:
        for done in run(
            wanted, store, num_processes=processes or os.cpu_count() or 1, ray_address=ray_address
        ):
            bar.update(done)
    found = outcome(json.loads(line) for line in store.lines(wanted))
    store.finish(wanted)
    click.echo(outcome_text(found, terminal()), nl=False, color=color())
    click.echo(f"wrote {out}", err=True)
    if found.unresolved:
        sys.exit(EXIT_MODEL)
    if not found.points:
        sys.exit(EXIT_NOTHING_FITS if is_all_too_large(found) else EXIT_USAGE)
