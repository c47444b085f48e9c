"""Timed runs are read line by line, and what is wrong with one is said by its line."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from planner import cli
from planner.calibrate.runs import (
    MOST_RUNS,
    machine_of_runs,
    read_runs,
    read_runs_file,
    timed_layouts,
)
from planner.core.errors import InvalidInputError
from planner.machine.reading import read_machine

REQUEST: dict[str, Any] = {
    "model": "gpt2",
    "cluster": {"gpu": "a100", "gpus_per_node": 2},
    "recipe": {"sequence_length": 1024, "global_batch_size": 32},
    "strategy": {"micro_batch_size": 4},
}


def _line(**fields: Any) -> str:
    return json.dumps({"request": REQUEST, "step_seconds": 0.4} | fields)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 1: is not JSON"),
        ("[" * 100_000, "line 1: is not JSON: nested too deeply"),
        ("3", "line 1: 3 is not an object"),
        ('{"request": {}}', "line 1: says nothing that was measured"),
        (_line(step_seconds=-1), "line 1: step_seconds: -1 is not between"),
        (_line(step_seconds="fast"), "line 1: step_seconds: 'fast' is not a number"),
        (_line(speed=3), "line 1: unknown key 'speed'"),
        ("", "no run in the file"),
        (" " * 2**20 + _line(), "line 1 is longer"),
    ],
)
def test_a_bad_line_is_refused(line: str, says: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        read_runs([line])
    assert says in refusal.value.message
    assert refusal.value.field == "--runs"


def test_no_more_runs_are_read_than_a_machine_file_holds() -> None:
    lines = [_line()] * (MOST_RUNS + 1)
    with pytest.raises(InvalidInputError, match="line 1001 is one more"):
        read_runs(lines)
    runs = read_runs(lines[:-1])
    with pytest.raises(InvalidInputError, match="more than 1,000 runs"):
        machine_of_runs(runs, machine_of_runs(runs[:1]))


def test_runs_of_two_kinds_of_gpu_are_no_machine() -> None:
    other = REQUEST | {"cluster": {"gpu": "h100"}}
    with pytest.raises(InvalidInputError, match="several GPUs: a100-sxm-80gb, h100-sxm-80gb"):
        machine_of_runs(read_runs([_line(), _line(request=other)]))


def test_a_request_that_cannot_be_estimated_is_named_by_its_run() -> None:
    bad = REQUEST | {"strategy": {"micro_batch_size": 5}}
    runs = read_runs([_line(), _line(request=bad)])
    with pytest.raises(InvalidInputError, match="run 2 cannot be estimated"):
        timed_layouts(runs, machine_of_runs(runs[:1]))


def test_runs_of_one_job_are_one_table() -> None:
    other = REQUEST | {"strategy": {"micro_batch_size": 8}, "id": "other"}
    longer = REQUEST | {"recipe": REQUEST["recipe"] | {"sequence_length": 512}}
    runs = read_runs([_line(), _line(request=other), _line(request=longer)])
    tables = timed_layouts(runs, machine_of_runs(runs))
    assert [table.numbers for table in tables] == [(0, 1), (2,)]


def _planner(*words: str, given: str = "") -> Result:
    return CliRunner().invoke(cli.cli, list(words), input=given, prog_name="planner")


def test_the_command_writes_a_machine_that_other_commands_take(tmp_path: Path) -> None:
    file = str(tmp_path / "machine.json")
    slow = _line(step_seconds=0.5, source="run\x1b[2J 1.log")
    made = _planner("calibrate", "--runs", "-", "--name", "lab", "-o", file, given=slow)
    assert made.exit_code == 2 or made.exception is not None
    good = _line(step_seconds=0.5, source="run 1.log")
    made = _planner("calibrate", "--runs", "-", "--name", "lab", "-o", file, given=good)
    assert made.exit_code == 0, made.output
    assert "run 1.log" in made.output
    assert f"--machine {file}" in made.output
    machine = read_machine(file)
    assert (machine.name, len(machine.runs)) == ("lab", 1)
    shown = _planner("calibrate", "--show", file)
    assert "Machine lab: 1 x 2 a100-sxm-80gb" in shown.output
    assert "runs" in shown.output
    planned = _planner("suggest", "gpt2", "--machine", file)
    assert "gpt2 on 2 x a100-sxm-80gb" in planned.output
    assert "the machine file has none (--machine)" in " ".join(planned.output.split())
    estimated = _planner("estimate", "--batch", "-", "--machine", file, given='{"model": "gpt2"}\n')
    answer = json.loads(estimated.output)
    assert answer["machine"]["name"] == "lab"


def test_a_machine_file_is_added_to(tmp_path: Path) -> None:
    file = str(tmp_path / "machine.json")
    for seconds, runs in ((0.5, 1), (0.6, 2), (0.5, 2)):
        known = ["--machine", file] if Path(file).exists() else []
        line = _line(step_seconds=seconds)
        made = _planner("calibrate", "--runs", "-", "-o", file, *known, given=line)
        assert len(read_machine(file).runs) == runs
    assert "1 of 1 runs given are there already: not counted twice" in made.stderr


def test_a_command_without_anything_to_calibrate_from_says_what_there_is() -> None:
    said = _planner("calibrate")
    assert said.exit_code == 2
    assert "--runs FILE" in said.output


def test_a_file_without_an_end_is_read_for_one_line() -> None:
    stream = io.StringIO("\0" * 2**23)
    with pytest.raises(InvalidInputError, match="line 1 is longer than 1,048,576"):
        read_runs_file(stream)
    assert stream.tell() < 2**21
