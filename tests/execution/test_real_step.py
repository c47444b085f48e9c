"""A few real steps of a model on a machine whose curves were measured."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from proof.jobs import SUBJECTS
from proof.measured import FOLDER

from planner.calibrate.measure import start
from planner.cli import cli
from planner.core.errors import InvalidInputError, UnsupportedError
from planner.machine.document import Machine, MeasuredRun
from planner.machine.reading import read_machine
from planner.verify import real_step as steps
from planner.verify.real_step import SOURCE, START_SECONDS, real_step

LENGTH = 64


@pytest.fixture
def model(tmp_path: Path) -> str:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SUBJECTS[0].config))
    return str(folder)


@pytest.fixture
def core() -> Machine:
    measured = read_machine(FOLDER / "cpu_proof_loopback.json")
    alone = replace(measured.cluster, gpus_per_node=1)
    return replace(measured, cluster=alone, collectives=(), runs=())


def test_a_plan_of_the_machine_is_run_and_timed(core: Machine, model: str) -> None:
    said: list[str] = []
    run = real_step(core, model, sequence_length=LENGTH, seconds=300, show=said.append)
    assert run.step_seconds is not None
    assert 0.001 < run.step_seconds < 30
    assert run.source == SOURCE
    assert run.request["cluster"] == {"gpu": "cpu", "gpus_per_node": 1, "nodes": 1}
    assert run.request["recipe"]["sequence_length"] == LENGTH
    assert run.request["recipe"]["global_batch_size"] == 16
    assert run.request["recipe"]["precision"] == "fp32"
    assert run.request["strategy"]["micro_batch_size"] >= 1
    assert said[0].startswith("6 real steps; at most ")


def test_a_batch_is_as_large_as_there_is_time_for(core: Machine, model: str) -> None:
    with pytest.raises(UnsupportedError, match=r"10 s to start, and 10 s are left"):
        real_step(core, model, sequence_length=LENGTH, seconds=START_SECONDS, show=print)


def calibrate(folder: Path, machine: Machine, *words: str) -> str:
    def measured(*_: object, **__: object) -> Machine:
        return machine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "measure_here", measured)
        patch.chdir(folder)
        arguments = ["calibrate", "--measure", "--cpu", "--budget", "300", *words]
        result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_calibrating_ends_with_real_steps(
    tmp_path: Path, core: Machine, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = {
        "model": dict(SUBJECTS[0].config),
        "cluster": {"gpu": "cpu", "gpus_per_node": 1},
        "recipe": {"sequence_length": LENGTH, "global_batch_size": 16, "precision": "fp32"},
        "strategy": {"micro_batch_size": 16},
    }

    def stepped(*_: object, **__: object) -> object:
        return MeasuredRun(request=request, step_seconds=0.4, source=SOURCE)

    monkeypatch.setattr(steps, "real_step", stepped)
    said = calibrate(tmp_path, core, "--model", model, "--seq-len", str(LENGTH))
    assert f"  {SOURCE}" in said
    machine = read_machine(tmp_path / "machine.json")
    assert [run.source for run in machine.runs] == [SOURCE]
    assert machine.anchors.compute is not None


@pytest.mark.parametrize("words", [(), ("--no-step",)])
def test_what_stands_in_the_way_of_real_steps_is_said(
    words: tuple[str, ...], tmp_path: Path, core: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(*_: object, **__: object) -> object:
        raise InvalidInputError("the run ended with exit status 1: no space")

    monkeypatch.setattr(steps, "real_step", failed)
    said = calibrate(tmp_path, core, *words)
    is_said = "left out: real steps of gpt2: the run ended with exit status 1: no space" in said
    assert is_said != bool(words)
    assert read_machine(tmp_path / "machine.json").runs == ()
