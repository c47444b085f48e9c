"""The command about batches: micro x accumulation x data parallel, steps and learning rate."""

import json
from typing import Any

import click

from planner.cli.numbers import FiniteRange
from planner.cli.output import color, say, terminal

_LARGEST = 2**24
_COUNT = click.IntRange(1, _LARGEST)


@click.command(
    epilog="\b\nplanner batch --gpus 4 --global-batch-size 256 --micro-batch-size 8 --samples 40000 --epochs 2"
)
@click.argument("model", required=False)
@click.option("--gpus", default=1, type=_COUNT, help="GPUs per node.")
@click.option("--nodes", default=1, show_default=True, type=_COUNT, help="Nodes.")
@click.option("--dp", type=_COUNT, help="Data parallel size, where it is not all the GPUs.")
@click.option("--global-batch-size", type=_COUNT, help="Samples of an optimizer step.")
@click.option(
    "--micro-batch-size", "--batch-per-gpu", type=_COUNT, help="Samples per GPU and pass."
)
@click.option("--accumulation-steps", "--chunks", type=_COUNT, help="Passes of a step.")
@click.option("--samples", type=click.IntRange(1, 10**15), help="Of the data set.")
@click.option("--epochs", default=1.0, show_default=True, type=FiniteRange(0, 10**6, min_open=True))
@click.option("--max-steps", type=click.IntRange(1, 10**12), help="As given to Trainer.")
@click.option("--warmup-fraction", type=FiniteRange(0, 1), help="Share of the steps, such as 0.03.")
@click.option("--learning-rate", type=FiniteRange(0, 1000, min_open=True), help="That was tuned.")
@click.option(
    "--from-batch", type=_COUNT, help="Global batch it was tuned with; else that of one GPU."
)
@click.option(
    "--method", type=click.Choice(["full", "lora", "qlora"], case_sensitive=False), default="full"
)
@click.option(
    "--task",
    type=click.Choice(["sequence-classification", "token-classification"]),
    help="For another head than the model's.",
)
@click.option("--from-scratch", is_flag=True, help="MODEL starts from random weights.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def batch(
    model: str | None, *, gpus: int, nodes: int, dp: int | None, as_json: bool, **flags: Any
) -> None:
    """Say how a global batch is made, its steps and learning rate, and what to configure.

    Any two of global batch, micro-batch and accumulation give the third; the global batch alone lists
    every way. With MODEL the learning rate of the nearest published run is taken.
    """
    from planner.advice.batch_plan import BatchWish
    from planner.answers.batch_plan_answer import (
        Trained,
        answer_batch_plan,
        data_parallel_ranks,
        plan_batch,
    )
    from planner.report.batch_plan_text import batch_text

    trained = Trained(
        model=model, **{name: flags.pop(name) for name in ("method", "from_scratch", "task")}
    )
    wish = BatchWish(ranks=data_parallel_ranks(gpus * nodes, dp), **flags)
    plan, notes = plan_batch(wish, trained, allow_paths=True)
    say(notes)
    if as_json:
        click.echo(json.dumps(answer_batch_plan(plan), indent=2))
    else:
        click.echo(batch_text(plan, terminal()), color=color())
