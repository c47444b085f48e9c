"""The flags that say what a configuration of another tool is for."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from planner.request.amounts import read_length

F = TypeVar("F", bound=Callable[..., Any])
_CLUSTER = ("gpus_per_node", "nodes", "gpu", "instance", "intra_node", "inter_node")


def setup_options(command: F) -> F:
    """Add the flags of a configuration's model and cluster, as `suggest` has them."""
    options = (
        click.option("--model", metavar="NAME", help="Of a configuration: the model it trains."),
        click.option(
            "--gpus", "gpus_per_node", type=int, help="Of a configuration: GPUs per node."
        ),
        click.option("--nodes", type=int, help="Of a configuration: nodes."),
        click.option("--gpu", metavar="NAME", help="Of a configuration: the GPU, such as h100."),
        click.option("--instance", metavar="NAME", help="Of a configuration: the cloud instance."),
        click.option("--intra-node", metavar="LINK", help="Of a configuration: links in a node."),
        click.option("--inter-node", metavar="LINK", help="Of a configuration: a node's network."),
        click.option(
            "--seq-len",
            "sequence_length",
            metavar="N",
            help="Of a configuration: tokens per sequence.",
        ),
        click.option("--command", metavar="WORDS", help="A command line, in place of a script."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def asked_of(flags: dict[str, Any]) -> Any:
    """Return what the flags say, and take them out of those that remain."""
    from planner.gate.configurations import Asked

    given = {name: flags.pop(name) for name in _CLUSTER}
    cluster = {name: value for name, value in given.items() if value is not None}
    length = flags.pop("sequence_length")
    recipe = {} if length is None else {"sequence_length": read_length(length)}
    return Asked(model=flags.pop("model"), cluster=cluster, recipe=recipe)
