"""Commands that list what is known without a network: models, GPUs, cloud instances, links."""

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, TypeVar

import click

from planner.cli.knowledge import accuracy
from planner.cli.output import color, terminal
from planner.core.errors import UnknownNameError, did_you_mean

F = TypeVar("F", bound=Callable[..., Any])


def _listing(command: F) -> F:
    """Add what every list takes: a filter, and --json."""
    command = click.option("--json", "as_json", is_flag=True, help="Print what REST answers.")(
        command
    )
    return click.argument("filter_text", metavar="[FILTER]", required=False, default="")(command)


def _matching(names: Iterable[str], filter_text: str, what: str) -> list[str]:
    """Return the names that contain a text, in any case; of aliases, the lines that hold them.

    Raises:
        UnknownNameError: none does.
    """
    known = list(names)
    found = [name for name in known if filter_text.lower() in name.lower()]
    if not found:
        raise UnknownNameError(
            f"no {what} has {filter_text[:60]!r} in its name",
            hint=did_you_mean(filter_text, [name.partition("/")[2] or name for name in known])
            or f"`planner {what}s` lists all of them",
            field="filter",
        )
    return found


def _print(answer: dict[str, Any], text: str, *, as_json: bool) -> None:
    click.echo(json.dumps(answer, indent=2) if as_json else text, color=color())


@click.command()
@_listing
def models(filter_text: str, *, as_json: bool) -> None:
    """List the models that need no network, or those with FILTER in their names."""
    from planner.catalog import records

    found = _matching(records.model_ids(), filter_text, "model")
    _print({"models": found}, "\n".join(found), as_json=as_json)


@click.command()
@_listing
def gpus(filter_text: str, *, as_json: bool) -> None:
    """List the known GPUs, or those with FILTER in a name or alias."""
    from planner.catalog import records
    from planner.report.catalog import gpus_text

    known = {
        " ".join((gpu.name, *gpu.aliases, *gpu.nvml_names)): gpu
        for gpu in map(records.gpu, records.gpu_names())
    }
    found = [known[names] for names in _matching(known, filter_text, "gpu")]
    answer = {"gpus": [asdict(gpu) for gpu in found]}
    _print(answer, gpus_text(found, _width()), as_json=as_json)


@click.command()
@_listing
def instances(filter_text: str, *, as_json: bool) -> None:
    """List the known cloud instances, or those with FILTER in their names, clouds or GPUs; one is shown whole."""
    from planner import answers
    from planner.catalog import records
    from planner.report.catalog import instance_text, instances_text

    known = {
        f"{instance.name} {instance.cloud} {instance.gpu}": instance
        for instance in map(records.instance, records.instance_names())
    }
    exact = [each for each in known.values() if each.name.lower() == filter_text.lower()]
    found = exact or [known[names] for names in _matching(known, filter_text, "instance")]
    if len(found) == 1:
        text, answer = instance_text(found[0], terminal()), answers.answer_instance(found[0])
    else:
        text = instances_text(found, _width())
        answer = {"instances": [answers.answer_instance(each) for each in found]}
    _print(answer, text, as_json=as_json)


@click.command()
@_listing
def links(filter_text: str, *, as_json: bool) -> None:
    """List the links that --intra-node and --inter-node take, or those with FILTER in their names."""
    from planner.catalog import records
    from planner.report.catalog import links_text

    found = [records.link(name) for name in _matching(records.link_names(), filter_text, "link")]
    answer = {"links": [asdict(link) for link in found]}
    _print(answer, links_text(found, _width()), as_json=as_json)


def _width() -> int | None:
    """Return the terminal's width; None where the list goes into a pipe, a record a line."""
    return terminal().width if sys.stdout.isatty() else None


@click.group()
def known() -> None:
    """List what is known: models, gpus, instances, links, accuracy."""


for _command in (models, gpus, instances, links, accuracy):
    known.add_command(_command)
