"""Commands with --batch: one JSON request a line in, one answer a line out."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from planner.cli.numbers import TextFile
from planner.cli.output import exit_of, say_kept
from planner.core import errors
from planner.core.errors import InvalidInputError
from planner.core.strict_json import parse_json

F = TypeVar("F", bound=Callable[..., Any])

_BESIDE_BATCH = frozenset({"batch", "machine", "out", "force", "as_json"})
_FILE_NAME = re.compile(r"\w[\w.+=@ -]{0,99}")
"""One name in one folder on every system: no separator, no leading dot."""


class _Lines(TextFile):
    """A file of requests, for which a number is often given: the batch that other tools call so."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Open the file."""
        if isinstance(value, str) and value.isdecimal() and not Path(value).exists():
            self.fail(
                f"a file of requests, not {value}: write --global-batch-size {value}.", param, ctx
            )
        return super().convert(value, param, ctx)


def batch_option(command: F) -> F:
    """Add --batch, which takes the place of MODEL and of the flags that describe a job."""
    return click.option(
        "--batch",
        type=_Lines("r", encoding="utf-8-sig", errors="replace"),
        help="File with one JSON request a line; - is stdin.",
    )(command)


def check_alone() -> None:
    """Refuse a command with neither a MODEL nor --batch, or with --batch and a job of its own.

    Raises:
        UsageError: names what to give, or to leave out.
    """
    context = click.get_current_context()
    if context.params["batch"] is None:
        if context.params["model"] is None:
            raise click.UsageError("give a MODEL, or --batch FILE")
        return
    given = [
        parameter.get_error_hint(context)
        for parameter in context.command.params
        if parameter.name not in _BESIDE_BATCH
        and context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"--batch has each job in its line: leave out {', '.join(given)}")


def print_estimates(file: Any, machine: Mapping[str, Any] | None) -> None:
    """Print the estimate of every line, on a machine where its line names no other."""
    from planner import answers

    lines = (
        (number, answer)
        for number, payload in _json_lines(file, machine)
        for answer in answers.answer_batch([payload], allow_paths=True)
    )
    _print_lines(lines)


def print_suggestions(
    file: Any, out: str | None, machine: Mapping[str, Any] | None, *, force: bool
) -> None:
    """Print the plan of every line, and write its launch files where they are wished.

    Args:
        file: open for reading.
        out: folder in which every plan gets a folder named by its id; None for no files.
        machine: of every line that names no other; None without one.
        force: whether plans in existing folders are replaced.
    """
    from planner import answers

    taken: set[str] = set()

    def answer(request: Any) -> Mapping[str, Any]:
        name = None if out is None else _folder_name(request.id, taken)
        resolved, plan = answers.suggest(request, allow_paths=True)
        suggestion = answers.answer_suggestion(request, resolved, plan)
        if out is None or name is None:
            return suggestion
        from planner.generate.write_bundle import write_targets

        written = write_targets(Path(out) / name, plan, suggestion, request.files, force=force)
        say_kept(written.kept)
        return {**suggestion, "targets": written.targets, "unwritten": written.unwritten}

    lines = (
        (number, answered)
        for number, payload in _json_lines(file, machine)
        for answered in answers.answer_each([payload], answer)
    )
    _print_lines(lines)


def _print_lines(lines: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
    """Print each line's answer; exit as the first would have where none was answered."""
    failed: list[str] = []
    is_answered = False
    for number, answer in lines:
        click.echo(json.dumps({"line": number, **answer}))
        error = answer.get("error")
        failed += [error["type"]] if error else []
        is_answered = is_answered or not error
    if failed and not is_answered:
        sys.exit(exit_of(getattr(errors, failed[0], errors.PlannerError)))


def _folder_name(request_id: str | int | None, taken: set[str]) -> str:
    name = "" if request_id is None else str(request_id)
    if not _FILE_NAME.fullmatch(name):
        raise InvalidInputError(
            f"the id {name[:40]!r} is no plain file name" if name else "a line without an id",
            hint="--out writes into a folder named by the id: letters, digits and ._+=@-",
            field="id",
        )
    if name in taken:
        raise InvalidInputError(
            f"an earlier line has the id {name!r}",
            hint="--out writes each plan into a folder of its own: give every line its own id",
            field="id",
        )
    taken.add(name)
    return name


def _with_progress(file: Any) -> Iterator[str]:
    """Yield the lines of a file, with a bar on a terminal that shows no answers; of a pipe as they come."""
    is_seen = sys.stderr.isatty() and not sys.stdout.isatty()
    if not is_seen or not file.seekable():
        yield from file
        return
    with click.progressbar(file.readlines(), label="planning", file=sys.stderr) as lines:
        yield from lines


def _json_lines(file: Any, machine: Mapping[str, Any] | None) -> Iterator[tuple[int, object]]:
    """Yield each line's number and value, with the machine in it, or what is wrong with a line that is no JSON."""
    for number, line in enumerate(_with_progress(file), start=1):
        if line.strip():
            try:
                value = parse_json(line)
                has_none = machine is not None and isinstance(value, dict)
                yield number, {"machine": machine, **value} if has_none else value
            except ValueError as error:
                hint = 'one JSON object a line, such as {"model": "gpt2"}'
                yield number, InvalidInputError(f"line {number} is not JSON: {error}", hint=hint)
