"""`planner race` from the terminal's door: what it refuses, says, prints and writes."""

import json
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fastapi.testclient import TestClient
from proof.measured import FOLDER
from raced import OOM, REQUEST, entrant, steps, write

from api.main import create_app
from api.settings import Settings
from planner.cli import cli
from planner.core.errors import InvalidInputError, UnsupportedError
from planner.core.units import GIB
from planner.generate.earlier_plan import earlier_files, edited_files
from planner.machine.document import Hardware
from planner.machine.reading import read_machine
from planner.machine.writing import machine_json
from planner.race.entrants import entrants_of_folder, entrants_of_request
from planner.race.keep import grow, machine_to_grow
from planner.race.odds import OPEN, odds_of_lead
from planner.race.results import answer_race
from planner.race.rounds import Race, run_all
from planner.race.small import smaller
from planner.race.start import check_machine, check_time, worth
from planner.request.schema import parse_request, resolve
from planner.verify.planned import read_planned

CORES = FOLDER / "cpu_proof_loopback.json"


def race(*words: str) -> Result:
    return CliRunner().invoke(cli, ["race", *words])


def plans(folder: Path) -> str:
    write(folder / "ddp", steps(0.1), 0.11)
    write(folder / "zero-1", steps(0.12), 0.1)
    write(folder / "zero-3", f"echo '{OOM}'; exit 1", 0.12)
    return str(folder)


def test_a_race_ends_with_the_winner_and_what_each_showed(tmp_path: Path) -> None:
    result = race(plans(tmp_path), "--cpu", "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert (answer["winner"], answer["is_stopped"]) == ("ddp", False)
    assert answer["is_on_planned_gpus"] is False
    found = {each["name"]: each for each in answer["plans"]}
    assert {name: each["state"] for name, each in found.items()} == {
        "ddp": "known",
        "zero-1": "slower",
        "zero-3": "failed",
    }
    assert found["ddp"]["planned_step_seconds"] == pytest.approx(0.11)
    assert found["ddp"]["step"]["seconds"] == pytest.approx(0.1, rel=1e-3)
    assert found["ddp"]["peak_bytes"] == pytest.approx(8 * GIB)
    assert found["zero-3"]["step"] is None
    assert "in doubt" in result.stderr


def test_the_table_marks_the_winner_and_gives_reasons(tmp_path: Path) -> None:
    lines = race(plans(tmp_path), "--cpu").stdout.splitlines()
    assert lines[0].startswith("ddp is the fastest, 20 % faster than zero-1")
    assert next(line for line in lines if line.lstrip().startswith("*")).split()[1] == "ddp"
    assert any("ERR005" in line for line in lines)


def test_the_winners_files_are_a_plan_that_says_it_was_measured(tmp_path: Path) -> None:
    out = tmp_path / "best"
    result = race(plans(tmp_path / "plans"), "--cpu", "--out", str(out))
    assert result.exit_code == 0, result.output
    plan = json.loads((out / "plan.json").read_text())
    assert plan["measured"]["step"]["seconds"] == pytest.approx(0.1, rel=1e-3)
    assert (out / "torchrun" / "launch.sh").read_text() == steps(0.1)
    assert (out / "torchrun" / "launch.sh").stat().st_mode & 0o100
    assert not edited_files(out, earlier_files(out))
    assert read_planned(str(out)).step_seconds.likely == pytest.approx(0.11)


def test_nothing_is_overwritten_unasked_and_that_is_said_before_anything_runs(
    tmp_path: Path,
) -> None:
    folder = plans(tmp_path / "plans")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    result = race(folder, "--cpu", "--out", str(tmp_path / "mine"))
    assert result.stdout == ""
    assert isinstance(result.exception, InvalidInputError)
    assert result.exception.field == "out"


def test_what_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    folder = plans(tmp_path / "plans")
    (tmp_path / "file").write_text("")
    result = race(folder, "--cpu", "--out", str(tmp_path / "file" / "best"))
    assert (result.stdout, getattr(result.exception, "field", "")) == ("", "out")
    result = race(folder, "--cpu", "--output", str(tmp_path))
    assert (result.stdout, getattr(result.exception, "field", "")) == ("", "--output")
    assert "is a folder" in str(result.exception)


def test_a_winner_that_cannot_be_written_leaves_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_given: object, **_named: object) -> None:
        raise InvalidInputError("cannot write 'best': No space left on device", field="out")

    monkeypatch.setattr("planner.race.keep.write_winner", full)
    file = tmp_path / "machine.json"
    monkeypatch.setattr("planner.race.start.check_machine", lambda *_given, **_named: None)
    folder, out = plans(tmp_path / "plans"), str(tmp_path / "best")
    result = race(folder, "--out", out, "--output", str(file))
    assert "No space left" in str(result.exception)
    assert len(read_machine(file).runs) == 3


def test_where_nothing_takes_a_step_it_exits_4(tmp_path: Path) -> None:
    write(tmp_path / "a", "exit 3")
    result = race(str(tmp_path), "--cpu", "--out", str(tmp_path / "out"))
    assert result.exit_code == 4
    assert not (tmp_path / "out").exists()


def test_told_to_end_it_exits_130_with_the_table(tmp_path: Path) -> None:
    write(tmp_path / "a", f"{steps(0.1, number=5)}kill -INT $PPID; sleep 100")
    write(tmp_path / "b", "exit 1", 0.2)
    result = race(str(tmp_path), "--cpu", "--json")
    assert result.exit_code == 130
    answer = json.loads(result.stdout)
    assert (answer["is_stopped"], answer["winner"], answer["plans"][0]["steps"]) == (True, "a", 4)
    assert answer["plans"][1]["why"] == ""
    assert answer_race(answer)["rows"][1][-1] == "not run"


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--cpu", "--gpus", "4"], "--gpus"),
        (["--cpu", "-o", "nowhere/machine.json"], "--output"),
    ],
)
def test_what_does_not_fit_a_folder_of_plans_is_refused(
    words: list[str], field: str, tmp_path: Path
) -> None:
    result = race(plans(tmp_path), *words)
    assert isinstance(result.exception, InvalidInputError)
    assert result.exception.field == field


def test_a_folder_without_launch_files_is_refused(tmp_path: Path) -> None:
    result = race(str(tmp_path), "--cpu")
    assert isinstance(result.exception, InvalidInputError)
    assert "--out" in result.exception.hint


def test_without_gpus_it_says_what_runs_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.race.start.probe", lambda: None)
    result = race(plans(tmp_path))
    assert isinstance(result.exception, UnsupportedError)
    assert "--cpu" in result.exception.hint


def test_plans_of_several_nodes_and_of_nothing_installed_are_refused(tmp_path: Path) -> None:
    one = entrant(tmp_path / "a", "exit 1")
    with pytest.raises(UnsupportedError, match="2 nodes"):
        check_machine([replace(one, planned=replace(one.planned, nodes=2))], on_cpus=True)
    with pytest.raises(UnsupportedError, match="nothing to race"):
        check_machine([], on_cpus=True)


def test_a_budget_that_no_plan_can_use_is_refused(tmp_path: Path) -> None:
    one = entrant(tmp_path / "a", "exit 1")
    long = replace(one.planned.step_seconds, likely=30.0)
    with pytest.raises(InvalidInputError, match="7 steps") as caught:
        check_time([replace(one, planned=replace(one.planned, step_seconds=long))], 120.0)
    assert caught.value.hint.startswith("--minutes 9 ")


def test_plans_whose_shares_are_too_short_are_refused_at_once(tmp_path: Path) -> None:
    one = entrant(tmp_path / "a", "exit 1")
    long = replace(one.planned.step_seconds, likely=9.7)
    one = replace(one, planned=replace(one.planned, step_seconds=long))
    with pytest.raises(InvalidInputError) as caught:
        check_time([one] * 4, 90.0)
    assert caught.value.field == "--minutes"
    enough = 60.0 * float(caught.value.hint.split()[1])
    check_time([one] * 4, enough)
    check_time([one], 120.0)


def test_a_folder_of_a_models_name_is_told_from_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans(tmp_path / "gpt2")
    monkeypatch.chdir(tmp_path)
    error = race("gpt2", "--nodes=2").exception
    assert isinstance(error, InvalidInputError)
    assert (error.field, "openai-community/gpt2" in error.hint) == ("--nodes", True)


def test_the_flags_of_jobs_are_among_those_used_most() -> None:
    shown = race("--help").stdout
    assert ("--launcher" in shown, "--hosts NAMES" in shown) == (True, True)


def test_a_start_counts_in_what_a_plan_needs(tmp_path: Path) -> None:
    one = entrant(tmp_path / "a", steps(0.1))
    with pytest.raises(InvalidInputError):
        check_time([one], 15.0)
    check_time([one], 60.0)
    assert "2 starts" in worth([one, one], 600.0)


def test_plans_in_doubt_are_written_and_alike_ones_once(tmp_path: Path) -> None:
    found = entrants_of_request(parse_request(REQUEST), 3, tmp_path)
    assert 2 <= len(found) <= 3
    steps_planned = [each.planned.step_seconds.likely for each in found]
    assert all(odds_of_lead("torch", min(steps_planned), each) < OPEN for each in steps_planned[1:])
    assert len({json.dumps(each.planned.data["chosen"]["strategy"]) for each in found}) == len(
        found
    )
    assert len({each.name for each in found}) == len(found)
    assert all((each.folder / each.target / "launch.sh").is_file() for each in found)


def test_a_target_that_cannot_be_raced_is_told_from_a_framework(tmp_path: Path) -> None:
    for files, said in (({"targets": ["axolotl"]}, True), ({}, False)):
        wanted = {**REQUEST, "files": files}
        if not files:
            wanted["recipe"] = {**REQUEST["recipe"], "framework": "megatron"}
        with pytest.raises(InvalidInputError, match="can be run for a few steps") as caught:
            entrants_of_request(parse_request(wanted), 4, tmp_path / str(said))
        assert ("--target must name one" in caught.value.hint) is said


def test_one_plan_is_raced_with_those_beside_it(tmp_path: Path) -> None:
    own = write(tmp_path / "own", steps(0.1))
    first, *others = entrants_of_folder(str(own), 3, tmp_path / "beside")
    assert first.folder == own
    assert others
    assert all(each.folder.parent == tmp_path / "beside" for each in others)
    assert {each.planned.ranks for each in (first, *others)} == {2}


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a", "exit 1")
    (tmp_path / "a" / "torchrun" / "requirements.txt").write_text("pytest>=9\nno-such-package==1\n")
    (found,) = entrants_of_folder(str(tmp_path), 4, tmp_path / "beside")
    assert found.missing == ("no-such-package",)
    result = race(str(tmp_path), "--cpu")
    assert isinstance(result.exception, UnsupportedError)
    assert "no-such-package" in result.stderr


def test_runs_of_a_race_are_runs_of_the_machine(tmp_path: Path) -> None:
    file = str(tmp_path / "machine.json")
    good = entrant(tmp_path / "good", steps(0.1))
    standings, _ = run_all(
        [good, entrant(tmp_path / "bad", f"echo '{OOM}'; exit 1")], Race(budget_seconds=20)
    )
    assert machine_to_grow(file, "l40s", None) is None
    assert grow(file, None, standings) == 2
    machine = read_machine(file)
    assert machine.cluster == Hardware(gpu="l40s", gpus_per_node=2)
    of_step, of_memory = sorted(machine.runs, key=lambda run: run.step_seconds is None)
    assert of_step.step_seconds == pytest.approx(0.1, rel=1e-3)
    assert of_step.peak_bytes == pytest.approx(8 * GIB)
    assert of_memory.reserved_bytes == pytest.approx(43.4 * GIB)
    assert grow(file, machine, standings) == 2
    assert grow(file, replace(machine, runs=()), standings[:1]) == 2  # of a race that began before
    with pytest.raises(InvalidInputError, match="l40s, and the plans are of h100"):
        machine_to_grow(file, "h100-sxm-80gb", None)


def test_a_model_that_cores_cannot_train_is_made_small() -> None:
    machine = machine_json(read_machine(CORES))
    said: dict[str, Any] = {"model": "meta-llama/Meta-Llama-3-8B", "machine": machine}
    request, (copy,) = smaller(parse_request(said))
    job = resolve(request, allow_paths=True).job
    assert "4 layers" in copy
    assert job.model.parameters < 10e6
    assert (job.recipe.sequence_length, job.recipe.global_batch_size) == (128, 8)
    assert smaller(parse_request({**said, "model": job.model.config}))[1] == ()
    with pytest.raises(InvalidInputError, match="cores") as caught:
        smaller(parse_request(REQUEST))
    assert "calibrate --measure --cpu" in caught.value.hint


def test_a_race_is_posted_as_it_was_printed(tmp_path: Path) -> None:
    printed = race(plans(tmp_path), "--cpu", "--json").stdout
    with TestClient(create_app(Settings(processes=0))) as client:
        answer = client.post("/v1/race", json=json.loads(printed)).json()
        page = client.post("/race", data={"race": printed}).text
    assert answer["winner"] == "ddp"
    assert [row[0] for row in answer["rows"]] == ["ddp", "zero-1", "zero-3"]
    assert answer["said"].startswith("ddp is the fastest, 20 % faster than zero-1")
    shown = unescape(page.partition('<section class="told"')[2].partition("</section>")[0])
    assert answer["said"] in shown
    assert all(cell in shown for row in answer["rows"] for cell in row)
