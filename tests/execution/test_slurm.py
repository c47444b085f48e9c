"""The generated batch script, submitted to a real Slurm."""

import subprocess
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
import slurm
from launched import DEEP_LLAMA, SECONDS, TINY, Run, deep, start, write
from needed import need, need_root
from reference import distance, expected
from run_specs import with_layout

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
