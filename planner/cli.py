"""The terminal's door: parse, call, print, write. No arithmetic, no decisions."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from shlex import join
from typing import Any, TypeVar

import click

from planner.errors import (
    InvalidInputError,
    ModelNotFoundError,
    NothingFitsError,
    PlannerError,
)

EXIT_USAGE, EXIT_NOTHING_FITS, EXIT_MODEL = 2, 3, 5

F = TypeVar("F", bound=Callable[..., Any])

_CLUSTER = ("gpu", "gpus_per_node", "nodes", "intra_node", "inter_node")
_RECIPE = (
    "sequence_length",
    "global_batch_size",
    "precision",
    "optimizer",
    "method",
    "attention",
    "framework",
)
_STRATEGY = ("micro_batch_size", "gradient_accumulation_steps", "recompute")


def _job_options(command: F) -> F:
    """Add the flags that describe a job; their names are the fields of the wire contract."""
    options = (
        click.option("--gpus", "gpus_per_node", type=int, help="GPUs per node."),
        click.option("--nodes", type=int, default=1, show_default=True, help="Nodes."),
        click.option("--gpu", metavar="NAME", help="GPU model, such as h100 or rtx-4090."),
        click.option(
            "--topology",
            type=click.Path(exists=True, dir_okay=False, allow_dash=True),
            help="File with the output of `nvidia-smi topo -m`.",
        ),
        click.option("--intra-node", metavar="LINK", help="Link between the GPUs of a node."),
        click.option("--inter-node", metavar="LINK", help="Link between nodes."),
        click.option("--revision", help="Branch, tag or commit of the model on the Hub."),
        click.option("--seq-len", "sequence_length", type=int, help="Tokens per sequence."),
        click.option("--global-batch-size", type=int, help="Sequences per optimizer step."),
        click.option("--precision", help="fp32, tf32, fp16-mixed, bf16-mixed or bf16."),
        click.option("--optimizer", help="adamw."),
        click.option("--method", help="full."),
        click.option("--attention", help="eager, sdpa or flash."),
        click.option("--framework", help="torch or accelerate."),
        click.option("--strategy", metavar="NAME", help="ddp, zero-1, zero-2, zero-3, or JSON."),
        click.option("--micro-batch-size", type=int, help="Sequences per GPU and pass."),
        click.option("--accumulation-steps", "gradient_accumulation_steps", type=int),
        click.option("--recompute", help="none or full."),
        click.option("--json", "as_json", is_flag=True, help="Print the contract's JSON."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "-V", "--version", package_name="planner")
def cli() -> None:
    """Plan how to train a model on several GPUs.

    \b
    planner suggest gpt2 --gpus 4
    planner suggest meta-llama/Llama-2-7b-hf --gpus 8 --gpu a100-80gb --out plan
    """  # noqa: D301 - click reads \b as "keep these lines"


@cli.command()
@click.argument("model")
@_job_options
@click.option("--out", type=click.Path(file_okay=False), help="Write launch files there.")
@click.option("--force", is_flag=True, help="Let --out replace an existing folder.")
def suggest(model: str, out: str | None, *, force: bool, as_json: bool, **flags: Any) -> None:
    """Recommend a strategy for MODEL and explain it."""
    from planner import wire
    from planner.report import plan_text

    request = _request(model, flags)
    resolved, plan = wire.suggest(request, allow_paths=True)
    _say(resolved.notes)
    answer = wire.answer_plan(resolved, plan, request.id)
    if out is not None:
        from planner.bundle import write_bundle

        write_bundle(Path(out), plan, answer, force=force)
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    else:
        command = join(["planner", *sys.argv[1:]])
        click.echo(plan_text(plan, resolved.assumptions, command, _bold), color=_color())
    if out is not None:
        click.echo(f"wrote {out}: read {Path(out) / 'README.md'} first", err=True)


@cli.command()
@click.argument("model", required=False)
@_job_options
@click.option(
    "--batch",
    type=click.File("r", encoding="utf-8"),
    help="File with one JSON request a line; - is stdin.",
)
def estimate(model: str | None, batch: Any, *, as_json: bool, **flags: Any) -> None:
    """Estimate one layout of MODEL, or every line of a --batch."""
    from planner import wire
    from planner.report import estimate_text

    if batch is not None:
        for answer in wire.answer_batch(_json_lines(batch), allow_paths=True):
            click.echo(json.dumps(answer))
        return
    if model is None:
        raise click.UsageError("give a MODEL, or --batch FILE")
    request = _request(model, flags)
    if as_json:
        click.echo(json.dumps(wire.answer_estimate(request, allow_paths=True), indent=2))
        return
    resolved, candidate = wire.estimate_request(request, allow_paths=True)
    _say(resolved.notes)
    click.echo(
        estimate_text(resolved.job, candidate, resolved.assumptions, _bold),
        nl=False,
        color=_color(),
    )


@cli.command()
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Explain the rule CODE; without one, list all rules."""
    from planner.report import table
    from planner.rules import RULES, find_rule

    if code is None:
        rows = [(rule.code, str(rule.severity), rule.text.splitlines()[0]) for rule in RULES]
        click.echo(table(rows))
        return
    rule = find_rule(code)
    click.echo(f"{_bold(rule.code)} {rule.name} ({rule.severity})\n\n{rule.text}", color=_color())


@cli.command()
@click.argument("name")
@click.option("--revision", help="Branch, tag or commit on the Hub.")
@click.option("--json", "as_json", is_flag=True, help="Print the contract's JSON.")
def model(name: str, revision: str | None, *, as_json: bool) -> None:
    """Show the parameters and parts of the model NAME."""
    from planner import wire
    from planner.report import model_text
    from planner.request import load_model

    described, notes = load_model(f"{name}@{revision}" if revision else name, allow_paths=True)
    _say(notes)
    if as_json:
        click.echo(json.dumps(wire.answer_model(described), indent=2))
    else:
        click.echo(model_text(described, _bold), color=_color())


@cli.command()
def models() -> None:
    """List the models that need no network."""
    from planner import catalog

    click.echo("\n".join(catalog.model_ids()))


@cli.command()
def gpus() -> None:
    """List the known GPUs."""
    from planner import catalog
    from planner.report import table
    from planner.units import GIB, format_bytes, format_flops, format_rate

    records = [catalog.gpu(name) for name in catalog.gpu_names()]
    rows = [("name", "memory", "HBM", "dense peak", "aliases")]
    for gpu in records:
        peak = gpu.peak_flops.get("bf16") or gpu.peak_flops.get("fp16") or gpu.peak_flops["fp32"]
        rows.append(
            (
                gpu.name,
                format_bytes(gpu.memory_bytes) if gpu.memory_bytes >= GIB else "",
                format_rate(gpu.hbm_bytes_per_second),
                format_flops(peak) + "/s",
                " ".join(gpu.aliases),
            )
        )
    click.echo(table(rows))


def _request(model: str, flags: dict[str, Any]) -> Any:
    """Return the wire request that the flags describe."""
    from planner.request import parse_request

    if flags["revision"] is not None:
        model = f"{model}@{flags['revision']}"
    cluster = _given(flags, _CLUSTER)
    if flags["topology"]:
        with click.open_file(flags["topology"], encoding="utf-8", errors="replace") as file:
            cluster["topology"] = file.read(2**17)
    _fill_from_machine(cluster)
    strategy = {**_strategy(flags["strategy"]), **_given(flags, _STRATEGY)}
    payload = {"model": model, "cluster": cluster, "recipe": _given(flags, _RECIPE)}
    return parse_request({**payload, "strategy": strategy} if strategy else payload)


def _given(flags: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: flags[name] for name in names if flags[name] is not None}


def _strategy(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    from planner.strategy import STAGES

    if text.lower() in STAGES:
        return {"zero_stage": STAGES[text.lower()]}
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidInputError(
            f"unknown strategy {text[:60]!r}",
            hint=f"one of {', '.join(STAGES)}, or a JSON object with the contract's fields",
            field="strategy.zero_stage",
        )
    return value


def _fill_from_machine(cluster: dict[str, Any]) -> None:
    """Take the GPUs of this machine where the command names none."""
    if "gpu" in cluster:
        return
    from planner.probe import local_gpus

    found = local_gpus()
    if found:
        cluster["gpu"] = found.names[0]
        cluster.setdefault("gpus_per_node", len(found.names))
        _say([f"found {len(found.names)} x {found.names[0]} here"])


def _json_lines(file: Any) -> Iterator[object]:
    """Yield each line's value; a line that is no JSON becomes the string it is."""
    for line in file:
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                yield line.strip()[:200]


def _say(notes: Iterable[str]) -> None:
    for note in notes:
        click.echo(f"note: {note}", err=True)


def _color() -> bool | None:
    """Return whether to colour: NO_COLOR and FORCE_COLOR win over what the terminal can do."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def _bold(text: str) -> str:
    return click.style(text, bold=True)


def main() -> None:
    """Run the command line; every failure ends in one message and the contract's exit code."""
    try:
        cli.main(standalone_mode=False)
    except PlannerError as error:
        _fail(error)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _fail(error: PlannerError) -> None:
    from planner.report import FLAGS

    flag = FLAGS.get(error.field, error.field)
    where = f" ({flag})" if flag else ""
    click.echo(f"error: {error.message}{where}", err=True)
    if error.hint:
        click.echo(f"hint: {error.hint}", err=True)
    if isinstance(error, NothingFitsError):
        sys.exit(EXIT_NOTHING_FITS)
    sys.exit(EXIT_MODEL if isinstance(error, ModelNotFoundError) else EXIT_USAGE)
