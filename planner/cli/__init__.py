"""The terminal's door: parse, call, print, write. No arithmetic, no decisions."""

import atexit
import contextlib
import gc
import json
import os
import sys
from collections import UserDict
from importlib import import_module
from itertools import pairwise
from typing import Any

import click

from planner import __version__
from planner.cli.help import MORE, WIDEST, GroupedCommands
from planner.cli.output import EXIT_USAGE, exit_of, say_folded, terminal
from planner.core.errors import (
    InvalidInputError,
    NothingFitsError,
    PlannerError,
    problems_of,
)

_GROUPS = {
    "Start": {
        "suggest": "plans",
        "estimate": "plans",
        "memory": "plans",
        "explain": "knowledge",
        "serve": "serve",
    },
    "What you have": {"check": "check", "doctor": "doctor", "verify": "verify", "diff": "check"},
    "Your machine": {
        "probe": "machine",
        "topology": "machine",
        "calibrate": "calibrate",
        "race": "race",
    },
    "What is known": {"list": "catalog:known"},
    MORE: {
        "batch": "batches",
        "replicas": "plans",
        "sweep": "sweeps",
        "model": "knowledge",
        "dryrun": "dryrun",
        "models": "catalog",
        "gpus": "catalog",
        "instances": "catalog",
        "links": "catalog",
        "accuracy": "knowledge",
    },
}
"""Where each command is, by its group of --help: a module, and its name there where that is another."""
_MODULES = {name: where for group in _GROUPS.values() for name, where in group.items()}


class _Commands(UserDict[str, Any]):
    """Commands by name; the module of one is imported where it is asked for."""

    def __getitem__(self, name: str) -> Any:
        module, _, called = super().__getitem__(name).partition(":")
        return getattr(import_module(f"planner.cli.{module}"), called or name)


_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": WIDEST}


@click.group(cls=GroupedCommands, commands=_Commands(_MODULES), context_settings=_SETTINGS)
@click.version_option(__version__, "-V", "--version")
def cli() -> None:
    """Plan how to train a model on several GPUs.

    \b
    planner suggest gpt2 --gpus 4
    planner suggest meta-llama/Llama-2-7b-hf --gpus 8 --gpu a100-80gb --out plan
    """  # noqa: D301 - click reads \b as "keep these lines"


cli.groups = _GROUPS
_READ_AT_IMPORT = {"OPENBLAS_NUM_THREADS": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__"}
"""A plan multiplies no matrices and has no plugins: neither threads nor installed packages are looked for."""
_PIN = "--pin NAME=VALUE"
_LOOKED_THROUGH_AFTER = 500_000
"""New objects between two looks for garbage: what a command imports and reads lives as long as it does."""


def main() -> None:
    """Run the command line; every failure ends in one message and the contract's exit code."""
    prepare_process()
    try:
        _run()
    except BrokenPipeError:
        _print_no_more()
        sys.exit(0)
    except OSError as error:  # a full disk, a folder that went away: what the system says is enough
        where = f"{error.filename}: " if error.filename else "cannot write the answer: "
        with contextlib.suppress(OSError):
            say_folded(f"error: {where}{error.strerror or error}")
        _print_no_more()
        sys.exit(EXIT_USAGE)


def prepare_process() -> None:
    """Set what makes a process quicker that does nothing but run a command."""
    os.environ.update(_READ_AT_IMPORT | os.environ)
    gc.set_threshold(_LOOKED_THROUGH_AFTER)
    atexit.register(gc.freeze)  # what is left goes with the process, and is not looked through


def _print_no_more() -> None:
    """Leave what is still to be printed unprinted: Python would try it again at its end."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())


def _run() -> None:
    """Run the command line; what a user can mend is said."""
    try:
        cli.main(prog_name="planner", standalone_mode=False)
    except PlannerError as error:
        _fail(error)
    except click.ClickException as error:
        if _wants_json():
            _print_error(InvalidInputError(error.format_message()))
        else:
            error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)


def _fail(error: PlannerError) -> None:
    """Say what is wrong, as text on stderr or with --json as an object on stdout, and exit."""
    if _wants_json():
        _print_error(error)
    else:
        _say_error(error)
    sys.exit(exit_of(type(error)))


def _wants_json() -> bool:
    words = sys.argv[1:]
    named = ("--format", "json") in pairwise(words)
    return named or bool({"--json", "--format=json"} & set(words))


def _print_error(error: PlannerError) -> None:
    from planner.answers import answer_error

    click.echo(json.dumps(answer_error(error), indent=2))


def _say_error(error: PlannerError) -> None:
    """Say all that is wrong with a request, by the flags that it was made of."""
    for each in problems_of(error):
        flag = _flag_of(each.field)
        wrong = each.message.removeprefix(f"{each.field}: ")
        if flag and wrong != each.message and _PIN not in flag:
            say_folded(f"error: {flag}: {wrong}")
        else:
            say_folded(f"error: {each.message}{f' ({flag})' if flag else ''}")
        if isinstance(error, NothingFitsError) and error.ways_out:
            _say_ways_out(error)
        elif each.hint:
            say_folded(f"hint: {each.hint}")


def _say_ways_out(error: NothingFitsError) -> None:
    from planner.report.values import table_text
    from planner.report.ways_out import ways_out_table

    click.echo(table_text(ways_out_table(error.ways_out), terminal()), err=True)


def _flag_of(field: str) -> str:
    """Return the flag that sets a field; of a layout those that were typed, where its own was not."""
    from planner.report.flags import flags

    listed, _, item = field.rpartition(".")
    field = listed if item.isdigit() else field
    flag = flags().get(field, field if field.startswith("--") else "")
    typed = {word.partition("=")[0] for word in sys.argv[1:]}
    if field.partition(".")[0] != "strategy" or flag.partition(" ")[0] in typed:
        return flag
    of_layouts = [each for name, each in flags().items() if name.startswith("strategy.")]
    possible = [*(of_layouts if field == "strategy" else []), _PIN]
    return ", ".join(each for each in possible if each.partition(" ")[0] in typed) or flag
