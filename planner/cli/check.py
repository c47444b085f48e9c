"""Commands that judge what is committed: check and diff."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from planner.cli.numbers import GpuNumber, WholeNumber
from planner.cli.output import EXIT_BROKEN, EXIT_NOTHING_FITS, color, terminal
from planner.core.errors import InvalidInputError
from planner.request.amounts import read_length

F = TypeVar("F", bound=Callable[..., Any])
_CLUSTER = ("gpus_per_node", "nodes", "gpu", "instance", "intra_node", "inter_node")
FORMATS = ("text", "json", "markdown", "github", "junit", "sarif")
_OF_DIFFERENCES = ("text", "json", "markdown")


def _setup_options(command: F) -> F:
    """Add the flags of a configuration's model and cluster, as `suggest` has them."""
    options = (
        click.option("--model", metavar="NAME", help="Of a configuration: the model it trains."),
        click.option(
            "--gpus", "gpus_per_node", type=GpuNumber(), help="Of a configuration: GPUs per node."
        ),
        click.option("--nodes", type=WholeNumber(), help="Of a configuration: nodes."),
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


def _asked_of(flags: dict[str, Any]) -> Any:
    """Return what the flags say, and take them out of those that remain."""
    from planner.gate.configurations import Asked

    given = {name: flags.pop(name) for name in _CLUSTER}
    cluster = {name: value for name, value in given.items() if value is not None}
    length = flags.pop("sequence_length")
    recipe = {} if length is None else {"sequence_length": read_length(length)}
    return Asked(model=flags.pop("model"), cluster=cluster, recipe=recipe)


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1)
@_setup_options
@click.option(
    "--max-memory", metavar="BYTES", help="Of a GPU: 70GiB, 90% of it, or +5% over the baseline."
)
@click.option("--max-step", metavar="TIME", help="Of an optimizer step: 900ms, 1.5s, or +5%.")
@click.option("--max-gpu-hours", metavar="N", help="Of the whole run: 1200, 12k, or +5%.")
@click.option("--max-cost", metavar="USD", help="Of the whole run: 500, or +5%.")
@click.option(
    "--baseline",
    metavar="FILE",
    help="Compare with that; what has no limit of its own may grow by --max-growth.",
)
@click.option(
    "--max-growth",
    metavar="SHARE",
    show_default="5%",
    help="Over the baseline; any only shows the difference.",
)
@click.option(
    "--locked",
    is_flag=True,
    help="Also ask whether a lock, and the folder it lies in, is what would be written now.",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="How to print it; github: annotations of a workflow.",
)
@click.option(
    "--write",
    "also",
    multiple=True,
    metavar="FORMAT=FILE",
    help="Also write it in that format into a file.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--fail-on",
    type=click.Choice(("error", "warning")),
    default="error",
    show_default=True,
    help="What makes it exit 4.",
)
@click.option("--require-gpu", is_flag=True, help="Of a configuration: assume no GPU.")
def check(
    files: tuple[str, ...],
    format_name: str,
    also: tuple[str, ...],
    *,
    locked: bool,
    as_json: bool,
    **wished: Any,
) -> None:
    """Judge each FILE: is it right, does it fit, do limits hold.

    Exits 4 where one does not, 3 where nothing fits.

    A FILE is a plan (what `suggest --json` or `estimate --json` printed, or a folder of --out), a
    request (JSON, planned as `suggest` does), or a lock (`suggest --lock`); - is stdin.
    Or it is what other tools read, all of one run together: ds_config.json, accelerate's yaml,
    TrainingArguments (JSON, yaml, or the Python that calls it: read, never run), a script with the
    torchrun, accelerate, deepspeed or Megatron command, torchtitan's toml.
    """
    from planner.gate.judge import Wishes, judge_files
    from planner.gate.limits import GROWTH, read_growth, read_limit

    command, fail_on = wished.pop("command"), wished.pop("fail_on")
    if not files and command is None:
        raise InvalidInputError("nothing to check", hint="give a FILE or --command", field="FILE")
    written = [_target(text) for text in also]
    asked = _asked_of(wished)
    if wished.pop("require_gpu") and not asked.cluster.keys() & {"gpu", "instance"}:
        raise InvalidInputError(
            "no GPU is named", hint="--gpu h100, or --instance", field="--require-gpu"
        )
    baseline, growth = wished.pop("baseline"), wished.pop("max_growth")
    if growth is not None and baseline is None:
        raise InvalidInputError(
            "a growth needs something to grow from",
            hint="add --baseline FILE",
            field="--max-growth",
        )
    limits = ((f"--{name.replace('_', '-')}", text) for name, text in wished.items())
    wishes = Wishes(
        limits=tuple(read_limit(text, flag) for flag, text in limits if text is not None),
        baseline=baseline,
        growth=GROWTH if growth is None else read_growth(growth),
        is_locked=locked,
        asked=asked,
        command=command,
    )
    verdicts = judge_files(files, wishes, sys.stdin.buffer)
    for name, path in written:
        _write(path, _render(name, verdicts))
    click.echo(_render("json" if as_json else format_name, verdicts, shown=True), color=color())
    if not all(verdict.fits for verdict in verdicts):
        sys.exit(EXIT_NOTHING_FITS)
    levels = {check.level for verdict in verdicts for check in verdict.checks}
    if "error" in levels or fail_on in levels:
        sys.exit(EXIT_BROKEN)


def _render(name: str, verdicts: Any, *, shown: bool = False) -> str:
    from planner.gate import ci_formats, formats
    from planner.report.values import Terminal

    by_name: Mapping[str, Any] = {
        "text": formats.as_text,
        "json": formats.as_json,
        "markdown": formats.as_markdown,
        "github": ci_formats.as_github,
        "junit": ci_formats.as_junit,
        "sarif": ci_formats.as_sarif,
    }
    return str(by_name[name](verdicts, terminal() if shown else Terminal()))


def _target(text: str) -> tuple[str, Path]:
    name, separator, file = text.partition("=")
    if name not in FORMATS or not separator or not file:
        raise InvalidInputError(
            f"cannot read {text[:60]!r} as FORMAT=FILE",
            hint=f"such as markdown=check.md; formats: {', '.join(FORMATS)}",
            field="--write",
        )
    return name, Path(file)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(f"{text}\n", encoding="utf-8")
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise InvalidInputError(f"cannot write {path}: {said}", field="--write") from None


@click.command()
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(_OF_DIFFERENCES),
    default="text",
    show_default=True,
    help="How to print it.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def diff(one: str, other: str, format_name: str, *, as_json: bool) -> None:
    """Say what differs between two plans, requests or locks.

    A is before, B after.

    Strategy, sizes, memory, step, cost, assumptions, findings, field by field; each is read as
    `planner check` reads it.
    """
    from planner.gate.formats import changes_markdown, changes_text
    from planner.gate.judge import compare_files
    from planner.gate.verdict import change_answer

    changes = compare_files(one, other, sys.stdin.buffer)
    name = "json" if as_json else format_name
    if name == "json":
        from planner.answers import SCHEMA_VERSION

        answer = {"schema_version": SCHEMA_VERSION, "changes": list(map(change_answer, changes))}
        click.echo(json.dumps(answer, indent=2))
    elif name == "markdown":
        click.echo(changes_markdown(changes, one))
    else:
        click.echo(changes_text(changes, one, terminal()), color=color())
