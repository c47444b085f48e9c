"""The generated batch script, submitted to a real Slurm; plans that are raced by it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
import slurm
from launched import DEEP_LLAMA, SECONDS, TINY, Run, deep, run, start, write
from needed import need, need_root
from proof.jobs import SUBJECTS
from proof.measured import FOLDER
from raced import OOM, entrant, steps
from reference import distance, expected
from run_specs import with_layout

from planner.race.entrants import Entrant
from planner.race.rounds import BEHIND, FAILED, KNOWN, OPEN, Race, run_all
from planner.race.slurm import Slurm

TWO_NODES = with_layout(TINY, nodes=2, gpus_per_node=1)


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    for program in ("slurmctld", "slurmd", "munged"):
        need(program, get="apt-get install slurm-wlm munge")
    need_root()
    with slurm.cluster(tmp_path_factory.mktemp("slurm")):
        yield


def finished_job(folder: Path) -> Run:
    """Submit the folder's batch script, and wait until the job is through."""
    submitted = start(folder, "sbatch", "--parsable", "launchers/slurm.sh", "--no-dropout")
    wait_until_through(folder, submitted.output().strip())
    return submitted


def wait_until_through(folder: Path, job: str) -> None:
    ended = "COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL"
    state = slurm.wait_for(ended, *states(job), seconds=SECONDS).strip()
    assert state == "COMPLETED", (folder / f"train-tiny-{job}.out").read_text()


def states(job: str) -> tuple[str, ...]:
    return ("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T")


@pytest.mark.usefixtures("preloaded")
def test_a_job_on_two_nodes_trains_like_one_process(tmp_path: Path) -> None:
    run = finished_job(write(tmp_path, TWO_NODES, "torchrun"))
    assert {record["world_size"] for record in run.log} == {2}
    assert run.losses == pytest.approx(expected("gpt2").losses, abs=1e-5, rel=0)


@pytest.mark.usefixtures("preloaded")
def test_a_pipeline_over_two_nodes_trains_like_one_process(tmp_path: Path) -> None:
    """Two stages, a node each, of two data-parallel processes."""
    plan = deep(DEEP_LLAMA, pipeline_parallel_size=2, data_parallel_size=2)
    run = finished_job(write(tmp_path, replace(plan, nodes=2, gpus_per_node=2), "torchrun"))
    reference = expected("deep-llama")
    assert {record["world_size"] for record in run.log} == {4}
    assert run.losses == pytest.approx(reference.losses, abs=1e-5, rel=0)
    assert distance(run.weights, reference.weights) <= 1e-5


def test_a_failing_node_ends_the_job(tmp_path: Path) -> None:
    folder = write(tmp_path, TWO_NODES, "torchrun")
    (folder / "torchrun" / "launch.sh").write_text(
        'if [ "$NODE_RANK" = 1 ]; then exit 3; else exec sleep 300; fi\n'
    )
    job = start(folder, "sbatch", "--parsable", "launchers/slurm.sh").output().strip()
    slurm.wait_for("FAILED", *states(job), seconds=60)


SAVES = """
if [ -e saved-0 ]; then echo "$VIRTUAL_ENV" >"went-on-$NODE_RANK"; exit; fi
python -c 'import signal, sys
saved = sys.argv[1]
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(print(file=open(saved, "w"))))
print(flush=True, file=open(f"started-{saved}", "w"))
signal.pause()' "saved-$NODE_RANK"
until [ -e saved-0 ] && [ -e saved-1 ]; do sleep 0.1; done
exit 1
"""
"""A launch.sh whose shell must outlive the signal that its process saves at; it ends when all have saved."""


def test_a_job_whose_time_is_up_saves_and_goes_on_by_itself(tmp_path: Path) -> None:
    """The batch shell gets the signal that Slurm sends two minutes before the end."""
    folder = write(tmp_path, TWO_NODES, "torchrun")
    (folder / "torchrun" / "launch.sh").write_text(SAVES)
    venv = folder / "it's an environment"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "activate").write_text("export VIRTUAL_ENV=activated\n")
    arguments = ("--parsable", "launchers/slurm.sh", "--resume", "latest")
    job = start(folder, "sbatch", *arguments, VENV=str(venv)).output().strip()
    for rank in (0, 1):
        wait_for_file(folder / "torchrun" / f"started-saved-{rank}")
    slurm.run("scancel", "--signal=USR1", "--batch", job)
    wait_until_through(folder, job)
    for rank in (0, 1):
        assert (folder / "torchrun" / f"saved-{rank}").exists()
        assert (folder / "torchrun" / f"went-on-{rank}").read_text() == "activated\n"


PRETRAIN = """
import os, pathlib, signal, sys
folder, rank = pathlib.Path(sys.argv[sys.argv.index("--save") + 1]), os.environ["RANK"]
assert "--exit-signal-handler" in sys.argv
if (folder / f"saved-{rank}").exists():
    sys.exit((folder / f"went-on-{rank}").touch())
signal.signal(signal.SIGTERM, lambda *_: sys.exit((folder / f"saved-{rank}").touch()))
(folder / f"started-{rank}").touch()
signal.pause()
"""
"""What pretrain_gpt.py does with that argument."""


def test_megatron_saves_when_the_time_is_up_and_goes_on(tmp_path: Path) -> None:
    """The processes that torchrun has started get the signal, and what starts them waits."""
    folder = write(tmp_path, TWO_NODES, "megatron")
    (folder / "pretrain_gpt.py").write_text(PRETRAIN)
    saves = folder / "saves"
    saves.mkdir()
    arguments = ("--parsable", "launchers/slurm.sh", "--save", str(saves), "--load", str(saves))
    job = start(folder, "sbatch", *arguments, MEGATRON_PATH=str(folder)).output().strip()
    for rank in (0, 1):
        wait_for_file(saves / f"started-{rank}")
    slurm.run("scancel", "--signal=USR1", "--batch", job)
    wait_until_through(folder, job)
    assert sorted(path.name for path in saves.glob("*-[01]")) == [
        f"{name}-{rank}" for name in ("saved", "started", "went-on") for rank in (0, 1)
    ]


def wait_for_file(path: Path) -> None:
    end = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.2)


@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_slurm_accepts_the_script(gpus: int, tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        with_layout(TWO_NODES, gpus_per_node=gpus, global_batch_size=16 * gpus),
        "torchrun",
    )
    slurm.run("sbatch", "--test-only", f"--chdir={folder}", str(folder / "launchers" / "slurm.sh"))


def test_slurm_refuses_what_the_cluster_does_not_have(tmp_path: Path) -> None:
    """The check above can fail: more GPUs or nodes than there are, or an option with a typo."""
    folder = write(tmp_path, TWO_NODES, "torchrun")
    script = folder / "launchers" / "slurm.sh"
    text = script.read_text()
    for right, wrong in (
        ("--gpus-per-node=1", "--gpus-per-node=9"),
        ("--nodes=2", "--nodes=3"),
        ("--exclusive", "--exclusiv-nodes"),
    ):
        script.write_text(text.replace(right, wrong))
        done = subprocess.run(["sbatch", "--test-only", script], capture_output=True, check=False)  # noqa: S607
        assert done.returncode != 0, wrong


RACE = Race(budget_seconds=120.0, patience_seconds=5.0, way=Slurm())
OURS = "--name=train-gpt2"
"""Names the jobs of those plans, and no job of `--wrap`."""
ON_NODE = 'echo $$ >"pid-$NODE_RANK"; setsid sleep 300 &\necho $! >"worker-$NODE_RANK"\n'
"""Of a launch.sh: leaves a process in a session of its own, as torchrun does."""


def raced(folder: Path, script: str) -> Entrant:
    """Return a plan of two nodes whose first one prints what a script does."""
    script = f'{ON_NODE}if [ "$NODE_RANK" = 0 ]; then\n{script}\nfi\nwait\n'
    return entrant(folder, script, nodes=2)


def left_of(folder: Path) -> list[int]:
    files = [*folder.rglob("pid-*"), *folder.rglob("worker-*")]
    assert len(files) % 4 == 0
    return [int(file.read_text()) for file in files if is_there(int(file.read_text()))]


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def held_job(folder: Path) -> str:
    """Submit a job that is somebody else's for a race, and never starts."""
    return slurm.run(
        "sbatch", "--parsable", "--hold", f"--chdir={folder}", "--wrap=sleep 9"
    ).strip()


def test_a_race_of_jobs_ends_with_a_winner_and_none_of_its_jobs(tmp_path: Path) -> None:
    other = held_job(tmp_path)
    plans = [
        raced(tmp_path / "it's fast", steps(0.1)),
        raced(tmp_path / "slow", steps(0.2, number=1000, pause=0.1)),
        raced(tmp_path / "fails", f"kill $(<worker-0); echo '{OOM}'; exit 3"),
    ]
    found = {each.entrant.name: each for each in run_all(plans, RACE)[0]}
    assert [found[name].state for name in ("it's fast", "slow", "fails")] == [KNOWN, BEHIND, FAILED]
    assert "ERR005" in found["fails"].why
    assert found["it's fast"].step is not None
    assert found["it's fast"].step.median == pytest.approx(0.1, rel=1e-3)
    assert left_of(tmp_path) == []
    assert not slurm.run("squeue", "--noheader", OURS)
    assert slurm.run(*states(other)).split() == ["PENDING"]
    slurm.run("scancel", other)


def test_a_job_in_the_queue_is_cancelled_by_ctrl_c_and_no_other(tmp_path: Path) -> None:
    both = ("--parsable", "--exclusive", "--nodes=2", f"--chdir={tmp_path}", "--wrap=sleep 300")
    other = slurm.run("sbatch", *both).strip()
    slurm.wait_for("RUNNING", *states(other), seconds=60)
    queued: list[str] = []

    def interrupt(why: str) -> None:
        if "Resources" in why:
            queued.append(slurm.run("squeue", "--noheader", OURS))
            os.kill(os.getpid(), signal.SIGINT)

    plans = [raced(tmp_path / "a", steps(0.1))]
    standings, is_stopped = run_all(plans, replace(RACE, waits=lambda _, why: interrupt(why)))
    assert (is_stopped, standings[0].state) == (True, OPEN)
    assert len(queued) == 1
    assert queued[0]
    assert not slurm.run("squeue", "--noheader", OURS)
    assert slurm.run(*states(other)).split() == ["RUNNING"]
    slurm.run("scancel", other)


def test_what_slurm_refuses_is_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "nope")
    standings, _ = run_all([raced(tmp_path / "a", steps(0.1))], RACE)
    assert standings[0].state == FAILED
    assert "invalid partition" in standings[0].why.lower()


def test_jobs_on_cpus_ask_for_no_gpus(tmp_path: Path) -> None:
    standings, _ = run_all(
        [raced(tmp_path / "a", steps(0.1))], replace(RACE, way=Slurm(on_cpus=True))
    )
    assert standings[0].state == KNOWN


@pytest.mark.usefixtures("preloaded")
def test_a_model_is_raced_by_jobs_that_train_it(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(SUBJECTS[0].config))
    machine = str(FOLDER / "cpu_proof_loopback.json")
    command = ["race", "./tiny", "--cpu", "--machine", machine, "--gpus", "2", "--json"]
    command += ["--framework", "torch", "--target", "torchrun", "--no-compile", "--most", "2"]
    command += ["--loss", "standard", "--seq-len", "64", "--global-batch-size", "8"]
    command += ["--precision", "fp32", "--minutes", "1.5", "--launcher", "slurm", "--out", "best"]
    planner = str(Path(sys.executable).with_name("planner"))
    output = run(tmp_path, planner, *command).output()
    answer = json.loads(output[output.index('{\n  "schema_version"') : output.rindex("\n}") + 2])
    assert len([each for each in answer["plans"] if each["step"]]) == 2, answer
    assert json.loads((tmp_path / "best" / "plan.json").read_text())["measured"]["steps"] >= 2
    assert {path.name for path in tmp_path.iterdir()} == {"tiny", "best"}
    assert not slurm.run("squeue", "--noheader")
