"""Plans that are raced as jobs: of a Slurm and on hosts that are programs of `programs/`, which run all of it here."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from raced import OOM, REQUEST, entrant, steps, write
from test_rounds import by_name, is_there

from planner.cli import cli
from planner.core.errors import InvalidInputError, UnsupportedError
from planner.race.entrants import Entrant, entrants_of_request
from planner.race.rounds import BEHIND, FAILED, KNOWN, OPEN, Race, run_all
from planner.race.slurm import Slurm
from planner.race.ways import Ssh
from planner.request.schema import parse_request

PROGRAMS = Path(__file__).with_name("programs")
BATCH_SCRIPT = 'exec bash "$(dirname -- "$0")/../${TARGET}/launch.sh" "$@"\n'
SLURM = Race(budget_seconds=20.0, patience_seconds=1.0, way=Slurm())
SSH = replace(SLURM, way=Ssh(hosts=("me@a",)))
SLEEP = "import time; time.sleep(100)"
WORKER = """
setsid python3 -c 'import os, sys, time
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(100)' "$HERE/pid-$HOST" "$@" &
while [[ ! -s "$HERE/pid-$HOST" ]]; do sleep 0.1; done
"""
"""A process in a session of its own that has the arguments of the run, as those that torchrun starts."""


@pytest.fixture(autouse=True)
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the programs first on PATH; return the folder of the jobs, by their numbers."""
    folder = tmp_path / "jobs of all"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CLUSTER", str(folder))
    return folder


def plan(folder: Path, script: str) -> Entrant:
    one = entrant(folder, script)
    (folder / "launchers" / "slurm.sh").write_text(BATCH_SCRIPT)
    return one


def text(file: Path) -> str:
    return file.read_text().strip()


def test_jobs_are_raced_and_who_cannot_win_is_cancelled(tmp_path: Path, jobs: Path) -> None:
    (jobs / "7").mkdir()  # of another user
    (jobs / "7" / "status").write_text("0")
    folder = tmp_path / 'it\'s 100 % "mine" $(touch pwned)'
    plans = [
        plan(folder / "fast", steps(0.1)),
        plan(folder / "slow", steps(0.2, number=1000, pause=0.02)),
    ]
    found = by_name(run_all(plans, SLURM)[0])
    assert [found[name].state for name in ("fast", "slow")] == [KNOWN, BEHIND]
    assert found["fast"].step is not None
    assert found["fast"].step.median == pytest.approx(0.1, rel=1e-3)
    assert len(found["slow"].seconds) < 100
    assert text(jobs / "9" / "state") == "CANCELLED"
    assert not is_there(int(text(jobs / "9" / "pid")))
    assert [path.name for path in (jobs / "7").iterdir()] == ["status"]
    assert not list(tmp_path.rglob("pwned"))
    assert not list(folder.glob("*/planner-race-*"))


def test_time_in_the_queue_is_none_of_the_race(
    tmp_path: Path, jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENDING", "16")  # for more than three seconds
    said: list[str] = []
    race = replace(SLURM, budget_seconds=2.5, waits=lambda _, why: said.append(why))
    (standing,), _ = run_all([plan(tmp_path / "a", steps(0.1))], race)
    assert standing.state == KNOWN
    assert said == ["job 7 waits: Priority"]
    assert text(jobs / "7" / "limit") == "6"


@pytest.mark.parametrize(
    ("name", "script", "why"),
    [
        ("refused", "exit 0", "Invalid partition name specified"),
        ("bad", f"echo '{OOM}'; exit 1", "ERR005"),
        ("bad", "echo no tea; exit 3", "exit status 3: no tea"),
        ("bad", "exit 0", "ended by itself after 0 steps"),
        ("bad", f"{steps(0.1, number=3)}exec sleep 100", "hangs: no step for"),
        ("bad", 'echo NODE_FAIL >"$JOB/state"; exec sleep 100', "Slurm ended the job: NODE_FAIL"),
        ("bad", 'echo OUT_OF_MEMORY >"$JOB/state"; exec sleep 100', "ERR006"),
        ("bad", 'touch "$JOB/forgotten"; exec sleep 100', "Slurm ended the job: FORGOTTEN"),
    ],
)
def test_what_fails_is_a_result_and_the_others_go_on(
    name: str, script: str, why: str, tmp_path: Path
) -> None:
    plans = [plan(tmp_path / name, script), plan(tmp_path / "good", steps(0.1))]
    found = by_name(run_all(plans, SLURM)[0])
    assert found[name].state == FAILED
    assert why in found[name].why
    assert "\n" not in found[name].why
    assert found["good"].state == KNOWN


def test_told_to_end_in_the_queue_it_cancels_the_job(
    tmp_path: Path, jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENDING", "1000000")

    plans = [plan(tmp_path / name, "touch started") for name in "ab"]
    race = replace(SLURM, waits=lambda _, __: os.kill(os.getpid(), signal.SIGINT))
    standings, is_stopped = run_all(plans, race)
    assert is_stopped
    assert [each.state for each in standings] == [OPEN, OPEN]
    assert [path.name for path in jobs.iterdir()] == ["7"]
    assert text(jobs / "7" / "state") == "CANCELLED"
    assert not list(tmp_path.rglob("started"))


def test_told_to_end_while_a_job_is_submitted_it_cancels_it(tmp_path: Path, jobs: Path) -> None:
    standings, is_stopped = run_all([plan(tmp_path / "interrupted", "touch started")], SLURM)
    assert (is_stopped, standings[0].state) == (True, OPEN)
    assert text(jobs / "7" / "state") == "CANCELLED"


def test_told_to_end_while_a_job_runs_it_keeps_what_was_measured(
    tmp_path: Path, jobs: Path
) -> None:
    script = f"{steps(0.1, number=4)}sleep 0.5; kill -TERM {os.getpid()}; exec sleep 100"
    (standing,), is_stopped = run_all([plan(tmp_path / "a", script)], SLURM)
    assert is_stopped
    assert len(standing.seconds) == 3
    assert not is_there(int(text(jobs / "7" / "pid")))


def test_hosts_are_raced_and_what_runs_on_them_ends_and_nothing_of_others(tmp_path: Path) -> None:
    script = (
        f'HERE="{tmp_path}"; {WORKER}\nif [[ "$NODE_RANK" = 0 ]]; then\n{steps(0.1)}\nfi\nwait\n'
    )
    plans = [
        entrant(tmp_path / "it's a", script, nodes=2),
        entrant(tmp_path / "b", '[[ "$NODE_RANK" = 0 ]] && exec sleep 100; exit 3', nodes=2),
    ]
    other = subprocess.Popen([sys.executable, "-c", SLEEP, str(tmp_path / "other")])
    try:
        found = by_name(run_all(plans, replace(SSH, way=Ssh(hosts=("me@a", "b"))))[0])
        assert found["it's a"].state == KNOWN
        assert found["b"].why.startswith("exit status 3")
        for host in ("me@a", "b"):
            assert not is_there(int(text(tmp_path / f"pid-{host}")))
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_told_to_end_it_ends_what_runs_on_hosts(tmp_path: Path) -> None:
    script = f'HERE="{tmp_path}"; {WORKER}\n{steps(0.1, number=4)}kill -INT {os.getpid()}; wait'
    (standing,), is_stopped = run_all([entrant(tmp_path / "a", script)], SSH)
    assert is_stopped
    assert len(standing.seconds) == 3
    assert not is_there(int(text(tmp_path / "pid-me@a")))


def test_a_host_that_is_down_is_a_result(tmp_path: Path) -> None:
    race = replace(SSH, way=Ssh(hosts=("down",)))
    (standing,), _ = run_all([entrant(tmp_path / "a", steps(0.1))], race)
    assert standing.state == FAILED
    assert "Connection refused" in standing.why


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--launcher", "kubernetes"], "--launcher"),
        (["--launcher", "all"], "--launcher"),
        (["--launcher", "ssh"], "--hosts"),
        (["--hosts", "a"], "--hosts"),
        (["--launcher", "slurm", "--hosts", "a"], "--hosts"),
        (["--launcher", "ssh", "--hosts", "a,-oProxyCommand=x"], "--hosts"),
        (["--launcher", "ssh", "--hosts", "a,a"], "--hosts"),
        (["--launcher", "ssh", "--hosts", "a,b"], "--hosts"),
        (["--launcher", "sbatch"], "--launcher"),
    ],
)
def test_what_starts_no_jobs_is_refused(words: list[str], field: str, tmp_path: Path) -> None:
    """The last is of a plan without slurm.sh."""
    folder = write(tmp_path / "plans" / "a", steps(0.1))
    (folder / "launchers" / "slurm.sh").unlink()
    result = CliRunner().invoke(cli, ["race", str(folder.parent), *words])
    assert isinstance(result.exception, InvalidInputError)
    assert (result.stdout, result.exception.field) == ("", field)
    assert result.exception.hint


def test_where_nothing_submits_jobs_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    write(tmp_path / "plans" / "a", steps(0.1))
    result = CliRunner().invoke(cli, ["race", str(tmp_path / "plans"), "--launcher", "slurm"])
    assert isinstance(result.exception, UnsupportedError)
    assert "sbatch" in result.exception.message


def test_a_folder_of_plans_is_raced_by_the_command(tmp_path: Path) -> None:
    for name, script in (("ddp", steps(0.1)), ("zero-1", steps(0.12))):
        folder = write(tmp_path / "plans" / name, script)
        (folder / "launchers" / "slurm.sh").write_text(BATCH_SCRIPT)
    words = ["race", str(tmp_path / "plans"), "--launcher", "sbatch", "--json"]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["winner"] == "ddp"


def test_plans_of_several_nodes_have_the_files_that_start_them(tmp_path: Path) -> None:
    said: dict[str, Any] = {**REQUEST, "files": {"launchers": ["slurm"]}}
    said["cluster"] = {**REQUEST["cluster"], "nodes": 2}
    found = entrants_of_request(parse_request(said), 2, tmp_path)
    assert found
    assert all((each.folder / "launchers" / "slurm.sh").is_file() for each in found)
    assert {each.planned.nodes for each in found} == {2}
