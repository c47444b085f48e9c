"""The command, and that its file is the same however it came to be."""

import csv
import json
import os
import signal
from collections.abc import Sequence
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyarrow import parquet

from planner.cli import cli
from planner.core.errors import InvalidInputError, PlannerError
from planner.sweep import run as run_of_sweep
from planner.sweep.row import answer_lines
from planner.sweep.run import in_processes, in_this_process

GRID = {"model": ["gpt2"], "gpu": ["a100", "t4"], "gpus": [1, 2], "batch": [8]}
LIST = [{"id": 7, "model": "gpt2", "gpu": "no-such"}, {"model": "gpt2", "gpu": "t4", "batch": 8}]
SWEEP = {"grid": GRID, "list": LIST}


def write(folder: Path, sweep: object = SWEEP) -> Path:
    file = folder / "sweep.json"
    file.write_text(json.dumps(sweep), encoding="utf-8")
    return file


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(cli, ["sweep", *map(str, arguments), "--processes", "1"])
    if isinstance(result.exception, PlannerError):
        raise result.exception
    return result


def planned(folder: Path, sweep: object = SWEEP, name: str = "out.jsonl") -> bytes:
    result = run(write(folder, sweep), "--out", folder / name)
    assert result.exit_code == 0, result.output
    return (folder / name).read_bytes()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return planned(tmp_path_factory.mktemp("finished"))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the requests that are planned from now on."""
    seen: list[dict[str, Any]] = []

    def counting(requests: Sequence[dict[str, Any]], *, allow_paths: bool) -> list[str]:
        seen.extend(requests)
        return answer_lines(requests, allow_paths=allow_paths)

    monkeypatch.setattr(run_of_sweep, "answer_lines", counting)
    return seen


@pytest.mark.parametrize(
    ("models", "code"),
    [(["gpt2", "meta-llama/Llama-2-70b-hf"], 0), (["meta-llama/Llama-2-70b-hf"], 3)],
)
def test_a_sweep_without_a_plan_has_the_exit_code_of_its_reason(
    tmp_path: Path, models: list[str], code: int
) -> None:
    sweep = write(tmp_path, {"grid": {"model": models, "gpu": ["t4"], "gpus": [1]}})
    assert run(sweep, "--out", tmp_path / "out.jsonl").exit_code == code


def test_a_model_that_cannot_be_resolved_is_named_and_ends_with_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    sweep = write(tmp_path, {"grid": {"model": ["gpt2", "no/such-model"], "gpus": [1]}})
    ended = run(sweep, "--out", tmp_path / "out.jsonl")
    assert (ended.exit_code, len((tmp_path / "out.jsonl").read_text().splitlines())) == (5, 2)
    assert "\nnot resolved: 'no/such-model'\n" in ended.output


def test_every_request_has_its_line_in_the_order_of_the_file(finished: bytes) -> None:
    rows = [json.loads(line) for line in finished.splitlines()]
    assert [(row["ok"], row["request"]["cluster"].get("gpus_per_node")) for row in rows] == [
        *((True, gpus) for gpus in (1, 2, 1, 2)),
        (False, None),
        (True, None),
    ]
    assert (rows[4]["id"], rows[4]["error"]["field"]) == (7, "cluster.gpu")
    flags = ("suggest", "gpt2", "--gpu", "t4", "--gpus", "2", "--global-batch-size", "8", "--json")
    alone = json.loads(CliRunner().invoke(cli, flags).stdout)["chosen"]
    assert rows[3]["step_seconds"] == alone["time"]["step_seconds"]
    assert rows[3]["strategy"] == alone["strategy"]


def test_a_torn_sweep_goes_on_where_it_was_torn(
    tmp_path: Path, finished: bytes, counted: list[dict[str, Any]]
) -> None:
    lines = finished.splitlines(keepends=True)
    (tmp_path / "out.jsonl.part").write_bytes(lines[3] + lines[0] + lines[1][:40])
    assert planned(tmp_path) == finished
    assert len(counted) == len(lines) - 2
    assert {file.name for file in tmp_path.iterdir()} == {"out.jsonl", "sweep.json"}


def test_a_sweep_that_grew_plans_what_is_new(
    tmp_path: Path, finished: bytes, counted: list[dict[str, Any]]
) -> None:
    (tmp_path / "out.jsonl").write_bytes(finished)
    assert planned(tmp_path) == finished
    assert not counted
    grown = {"grid": {**GRID, "gpus": [1, 2, 4], "gpu": "t4"}}
    assert len(planned(tmp_path, grown).splitlines()) == 3
    assert [request["cluster"]["gpus_per_node"] for request in counted] == [4]


def test_what_a_silent_hub_left_is_asked_again(
    tmp_path: Path, finished: bytes, counted: list[dict[str, Any]]
) -> None:
    silent = finished.replace(b'"UnknownNameError"', b'"HubUnreachableError"')
    (tmp_path / "out.jsonl").write_bytes(silent)
    assert planned(tmp_path) == finished
    assert counted == [{"id": 7, "model": "gpt2", "cluster": {"gpu": "no-such"}}]


def test_another_file_is_left_alone(tmp_path: Path, finished: bytes) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("my thesis\n", encoding="utf-8")
    with pytest.raises(PlannerError, match="holds no lines of a sweep"):
        run(write(tmp_path), "--out", out)
    assert out.read_text(encoding="utf-8") == "my thesis\n"
    table = tmp_path / "out.csv"
    table.touch()
    with pytest.raises(PlannerError, match="a table is written once") as caught:
        run(write(tmp_path), "--out", table)
    assert ".jsonl, which goes on" in caught.value.hint
    assert run(write(tmp_path), "--out", out, "--force").exit_code == 0
    assert out.read_bytes() == finished


def test_parquet_has_the_same_rows(tmp_path: Path, finished: bytes) -> None:
    planned(tmp_path, name="out.parquet")
    rows = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    for row, line in zip(rows, finished.splitlines(), strict=True):
        wanted = json.loads(line)
        assert json.loads(row["request"]) == wanted["request"]
        assert row["tokens_per_second"] == wanted.get("tokens_per_second")
        assert row["ok"] == wanted["ok"]
    assert json.loads(rows[4]["error"])["type"] == "UnknownNameError"
    with pytest.raises(PlannerError, match="is there"):
        run(write(tmp_path), "--out", tmp_path / "out.parquet")


def test_csv_has_the_same_rows(tmp_path: Path, finished: bytes) -> None:
    planned(tmp_path, name="out.csv")
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    for row, line in zip(rows, finished.splitlines(), strict=True):
        wanted = json.loads(line)
        assert json.loads(row["request"]) == wanted["request"]
        assert row["tokens_per_second"] == str(wanted.get("tokens_per_second", ""))
        assert row["ok"] == str(wanted["ok"])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("out.xlsx", "names no format"),
        ("out", "names no format"),
        ("no/such/out.jsonl", "cannot write"),
        ("sweep.json/out.jsonl", "cannot write"),
    ],
)
def test_a_file_that_cannot_be_written_is_said_before_a_plan(
    tmp_path: Path, counted: list[dict[str, Any]], name: str, said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        run(write(tmp_path), "--out", tmp_path / name)
    assert not counted


def test_a_killed_process_loses_nothing() -> None:
    chunks = [[{"model": "gpt2", "cluster": {"gpu": "t4"}, "id": each}] for each in range(12)]
    found = []
    for lines in in_processes(iter(chunks), 2):
        found += lines
        if len(found) == 2:
            killed = active_children()[0].pid
            assert killed is not None
            os.kill(killed, signal.SIGKILL)
    assert sorted(found) == sorted(line for lines in in_this_process(chunks) for line in lines)


def test_processes_that_end_again_and_again_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_of_sweep, "answer_lines", ended)
    with pytest.raises(PlannerError, match="again and again"):
        list(in_processes([[{"model": "gpt2"}]], 1))


def ended(_requests: Sequence[dict[str, Any]], *, allow_paths: bool) -> list[str]:
    """End the process that answers."""
    os._exit(int(allow_paths))


def test_a_cluster_and_processes_of_this_machine_exclude_each_other(tmp_path: Path) -> None:
    result = run(write(tmp_path), "--out", tmp_path / "out.jsonl", "--ray", "auto")
    assert result.exit_code == 2
    assert "give one" in result.output
