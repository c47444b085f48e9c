"""Commands that look at machines: this one, or one whose `nvidia-smi topo -m` was saved."""

import json
from pathlib import Path
from shlex import quote
from typing import Any

import click

from planner.cli.numbers import NamedPath, TextFile
from planner.cli.output import say
from planner.core.errors import InvalidInputError, UnsupportedError


@click.command()
@click.argument("file", type=TextFile("r", encoding="utf-8", errors="replace"))
@click.option("--gpu", metavar="NAME", help="GPU, where the file does not name it.")
@click.option("--tp", "tensor", type=click.IntRange(1), default=1, help="Tensor parallel size.")
@click.option("--pp", "pipeline", type=click.IntRange(1), default=1, help="Pipeline stages.")
@click.option("--json", "as_json", is_flag=True, help="Print the contract's JSON.")
def topology(file: Any, gpu: str | None, tensor: int, pipeline: int, *, as_json: bool) -> None:
    """Draw the links in FILE, and which GPU is which rank.

    FILE is what `nvidia-smi topo -m` printed; - is stdin.
    """
    from planner.hardware.topology import LARGEST_TEXT, draw, parse_topology
    from planner.report.cluster import placement_text

    found = parse_topology(file.read(LARGEST_TEXT + 1))
    placed = placement_text(found, gpu, {"tensor": tensor, "pipeline": pipeline})
    click.echo(json.dumps(found.to_wire(), indent=2) if as_json else f"{draw(found)}\n{placed}")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
@click.option(
    "--out",
    type=NamedPath(dir_okay=False, path_type=Path),
    help="Write the file that --topology reads, for a machine without these GPUs.",
)
@click.option("--force", is_flag=True, help="Let --out replace an existing file.")
def probe(*, as_json: bool, out: Path | None, force: bool) -> None:
    """Show the GPUs of this machine and how they are connected."""
    from planner.hardware import probe as machines
    from planner.hardware.topology import dump
    from planner.report.values import columns_text

    found = machines.probe()
    if found is None:
        raise UnsupportedError(
            machines.why_none(), hint="name the GPUs with --gpu NAME, or give --topology FILE"
        )
    if force and out is None:
        say(["--force changes nothing without --out: no file is written"])
    if out is not None:
        _write(out, dump(found.topology), force=force)
    text = json.dumps(machines.to_wire(found), indent=2) if as_json else ""
    click.echo(text or machines.describe(found, columns_text))
    if out is not None:
        say([f"wrote {out}: use it as --topology {quote(str(out))}"])


def _write(file: Path, text: str, *, force: bool) -> None:
    try:
        with file.open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise InvalidInputError(
            f"{file} exists", hint="choose another name, or add --force", field="--out"
        ) from None
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {file}: {error.strerror}", hint="", field="--out"
        ) from None
