"""The command about batches: micro x accumulation x data parallel, steps and learning rate."""

import json
from typing import Any

import click

from planner.cli.output import color, say, terminal
from planner.core.errors import InvalidInputError

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
@click.option(
    "--epochs", default=1.0, show_default=True, type=click.FloatRange(0, 10**6, min_open=True)
)
@click.option("--max-steps", type=click.IntRange(1, 10**12), help="As given to Trainer.")
@click.option(
    "--warmup-fraction", type=click.FloatRange(0, 1), help="Share of the steps, such as 0.03."
)
@click.option(
    "--learning-rate", type=click.FloatRange(0, 1000, min_open=True), help="That was tuned."
)
@click.option(
    "--from-batch", type=_COUNT, help="Global batch it was tuned with; else that of one GPU."
)
@click.option("--method", type=click.Choice(["full", "lora", "qlora"]), default="full")
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
    from planner import answers
    from planner.advice.batch_plan import BatchWish, batch_plan
    from planner.report.batch_plan import batch_text

    method, is_new, task = (flags.pop(name) for name in ("method", "from_scratch", "task"))
    if dp is not None and (gpus * nodes) % dp and gpus * nodes > 1:
        raise InvalidInputError(
            f"{dp} data-parallel ranks do not divide {gpus * nodes} GPUs", field="--dp"
        )
    wish = BatchWish(ranks=dp or gpus * nodes, **flags)
    published = None
    if model is not None and wish.learning_rate is None:
        published = _published(model, wish, method=method, is_new=is_new, task=task)
    plan = batch_plan(wish, published)
    if as_json:
        click.echo(json.dumps(answers.answer_batch_plan(plan), indent=2))
    else:
        click.echo(batch_text(plan, terminal()), color=color())


def _published(model: str, wish: Any, *, method: str, is_new: bool, task: str | None) -> Any:
    """Return the rate of the published run that is nearest to the model."""
    from planner.advice.batch_plan import published_rate
    from planner.advice.batches import splits
    from planner.request.assumed import assumed_sequence_length
    from planner.request.model import load_model

    described, notes = load_model(model, allow_paths=True, task=task)
    say(notes)
    ways = splits(
        wish.ranks,
        global_batch_size=wish.global_batch_size,
        micro_batch_size=wish.micro_batch_size,
        accumulation_steps=wish.accumulation_steps,
    )
    return published_rate(
        described,
        is_pretrained=described.is_pretrained and not is_new,
        has_adapters=method != "full",
        batch=ways[0].global_batch_size,
        sequence_length=assumed_sequence_length(described, 1),
    )
