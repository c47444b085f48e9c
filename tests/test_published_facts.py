"""Every fact of the public texts that the planner began with, by its number: `facts/published_facts.toml`."""

import json
import operator
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from planner.cli import cli
from planner.core.errors import PlannerError
from planner.report.glossary import explain

ROOT = Path(__file__).parents[1]
FILE = tomllib.loads((ROOT / "tests/facts/published_facts.toml").read_text(encoding="utf-8"))
FACTS = {fact["number"]: fact for fact in FILE["fact"]}
CLASSIFIER = (
    "gpt2 --task sequence-classification --gpu v100-sxm2-16gb --precision fp32 --attention eager"
    " --accumulation-steps 1"
)
BERT = (
    "bert-large-uncased --gpus 4 --gpu titan-rtx --no-peer-to-peer --precision fp16 --seq-len 384"
    " --attention eager --task token-classification --micro-batch-size 12 --gradient-reduce-dtype bf16"
)
JOBS = {
    "{classifier}": CLASSIFIER,
    "{forum}": f"{CLASSIFIER} --seq-len 16 --micro-batch-size 128 --samples 8551 --epochs 2",
    "{bert16}": f"{BERT} --accumulation-steps 16",
    "{bert}": f"{BERT} --accumulation-steps 1",
}
"""What several facts are about. How long the forum's sentences are is assumed; see docs/accuracy/runs.md."""
EXACT: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
    "has": lambda found, wanted: wanted in found,
}


def test_there_are_78_of_them_and_each_has_a_check_or_a_reason() -> None:
    assert list(FACTS) == list(range(1, 79))
    for fact in FACTS.values():
        assert fact["source"] in FILE["sources"]
        assert fact["line"]
        assert fact["says"]
        assert fact.get("checks") or fact["waits"], fact["number"]


@pytest.mark.parametrize("number", [n for n, fact in FACTS.items() if "checks" in fact])
def test_the_planner_holds_to(number: int) -> None:
    for check in FACTS[number]["checks"]:
        if "test" in check:
            assert_there_is(check["test"])
        elif "term" in check:
            assert_said(" ".join(explain(check["term"]).text.split()), check)
        elif "error" in check:
            assert check["error"] in refusal(check["command"])
        elif check.get("text"):
            assert_said(run(check["command"]).stdout, check)
        elif "over" in check:
            one, other = (at(answer(check[name]), check["path"]) for name in ("command", "over"))
            assert one / other == pytest.approx(check["value"], rel=check["tolerance"])
        else:
            for path, how, wanted in check["json"]:
                assert_holds(answer(check["command"]), path, how, wanted)


def assert_there_is(test: str) -> None:
    """A fact that only a longer test can hold, such as a training run, is held where that test is."""
    path, _, name = test.partition("::")
    assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), test


def assert_said(text: str, check: dict[str, Any]) -> None:
    for phrase in check.get("says", ()):
        assert phrase.lower() in text.lower(), phrase
    for phrase in check.get("never", ()):
        assert phrase.lower() not in text.lower(), phrase


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
            found = next(each for each in found if each[key] == wanted)
        else:
            found = found[int(part)] if isinstance(found, list) else found[part]
    return found


def answer(command: str) -> Any:
    """Return the JSON that a command prints; one that says that nothing fits has it too."""
    printed = run(f"{command} --json").stdout
    return json.loads(printed)


def refusal(command: str) -> str:
    error = run(command).exception
    assert isinstance(error, PlannerError), command
    return f"{error.message} {error.hint}"


@cache
def run(command: str) -> Result:
    words = command
    for name, job in JOBS.items():
        words = words.replace(name, job)
    return CliRunner().invoke(cli, words.split())
