"""What a published fact or problem is checked by: a question put to the planner in this process, and what it must answer.

A check is one of these, in a data file of `facts/`:

- `command`, the arguments of `planner`, and what its JSON has (`json`: path, operator, value), what its text `says` or
  `never` says, its `exit` code, or the words of its `error`; `files` are written first, `stdin` is given, and `written` is the file of
  `--out` to look at;
- `command` and `over`: the value at `path` of the one is `value` times that of the other;
- `body`, posted to `path` of the service, and what its answer has;
- `term` and what its explanation says;
- `test`, where a longer test holds it.
"""

import json
import operator
import shlex
from collections.abc import Callable
from contextlib import chdir
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fastapi.testclient import TestClient

from api.main import create_app
from api.settings import Settings
from planner.cli import cli
from planner.core.errors import PlannerError
from planner.explain.glossary import explain

ROOT = Path(__file__).parents[1]
EXACT: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
    "has": lambda found, wanted: wanted in found,
}
Check = dict[str, Any]


def assert_check(check: Check, jobs: dict[str, str] | None = None) -> None:
    """Put the check's question to the planner; `jobs` are short names for what several commands are about."""
    if "test" in check:
        assert_there_is(check["test"])
    elif "term" in check:
        assert_said(" ".join(explain(check["term"]).text.split()), check)
    elif "over" in check:
        one, other = (
            at(answer(check | {"command": check[name]}, jobs), check["path"])
            for name in ("command", "over")
        )
        assert one / other == pytest.approx(check["value"], rel=check["tolerance"])
    elif "error" in check:
        assert check["error"] in refusal(check, jobs)
    elif "body" in check:
        assert_has(post(check), check)
    elif "json" in check:
        assert_has(answer(check, jobs), check)
    else:
        assert_said(printed(check, jobs), check)
    if "exit" in check:
        assert run(check, jobs)[0].exit_code == check["exit"]


def assert_there_is(test: str) -> None:
    """A fact that only a longer test can hold, such as a training run, is held where that test is."""
    path, _, name = test.partition("::")
    assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), test


def assert_said(text: str, check: Check) -> None:
    assert check.get("says") or check.get("never"), "a check of a text says what stands in it"
    for phrase in check.get("says", ()):
        assert phrase.lower() in text.lower(), (phrase, text)
    for phrase in check.get("never", ()):
        assert phrase.lower() not in text.lower(), phrase


def assert_has(found: Any, check: Check) -> None:
    for path, how, wanted in check["json"]:
        assert_holds(found, path, how, wanted)


def assert_holds(found: Any, path: str, how: str, wanted: Any) -> None:
    value = at(found, path)
    if how.startswith("within "):
        assert value == pytest.approx(wanted, rel=float(how.split()[1]) / 100), path
        return
    if how in {"<", ">"} and isinstance(wanted, str):
        wanted = at(found, wanted)
    assert EXACT[how](value, wanted), (path, value, how, wanted)


def at(found: Any, path: str) -> Any:
    """Return what a path leads to: names, positions, and name=value for the element that has it."""
    parts = path.split(".")
    while parts:
        part = parts.pop(0)
        if isinstance(found, list) and "=" in part:
            key, _, wanted = part.partition("=")
            while wanted not in {each[key] for each in found} and parts:
                wanted += f".{parts.pop(0)}"
            found = next((each for each in found if each[key] == wanted), None)
            assert found is not None, f"nothing has {key} {wanted}"
        else:
            found = found[int(part)] if isinstance(found, list) else found[part]
    return found


def answer(check: Check, jobs: dict[str, str] | None) -> Any:
    """Return the JSON that a command prints; one that says that nothing fits has it too."""
    return json.loads(run(check | {"command": f"{check['command']} --json"}, jobs)[0].stdout)


def printed(check: Check, jobs: dict[str, str] | None) -> str:
    """Return what the command prints, its notes too, or the file that it writes, as one line."""
    result, written = run(check, jobs)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return " ".join((written if "written" in check else result.output).split())


def refusal(check: Check, jobs: dict[str, str] | None) -> str:
    error = run(check, jobs)[0].exception
    assert isinstance(error, PlannerError), check["command"]
    return f"{error.message} {error.hint}"


def run(check: Check, jobs: dict[str, str] | None) -> tuple[Result, str]:
    command = check["command"]
    for name, job in (jobs or {}).items():
        command = command.replace(name, job)
    files = tuple(sorted(check.get("files", {}).items()))
    return _run(command, files, check.get("stdin", ""), check.get("written", ""))


@cache
def _run(
    command: str, files: tuple[tuple[str, str], ...], stdin: str, written: str
) -> tuple[Result, str]:
    runner = CliRunner()
    if not files and not written:
        return runner.invoke(cli, shlex.split(command), input=stdin), ""
    with TemporaryDirectory() as folder, chdir(folder):
        for name, text in files:
            Path(name).write_text(text, encoding="utf-8")
        result = runner.invoke(cli, shlex.split(command), input=stdin)
        return result, Path(written).read_text(encoding="utf-8") if written else ""


def post(check: Check) -> Any:
    """Return the answer of the service, which asks no Hub."""
    response = service().post(check["path"], json=check["body"])
    assert response.status_code < 500, response.text
    return response.json()


@cache
def service() -> TestClient:
    return TestClient(create_app(Settings(processes=0)))
