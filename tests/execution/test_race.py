"""Two layouts of a tiny model on two cores, raced as their user would."""

import json
import os
import sys
from pathlib import Path

from launched import run
from proof.jobs import SUBJECTS
from proof.measured import FOLDER

PLANNER = str(Path(sys.executable).with_name("planner"))


def test_two_layouts_are_run_and_the_winner_is_kept(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(SUBJECTS[0].config))
    machine = str(FOLDER / "cpu_proof_loopback.json")
    command = [PLANNER, "race", "./tiny", "--cpu", "--machine", machine, "--gpus", "2", "--json"]
    command += ["--framework", "torch", "--target", "torchrun", "--no-compile", "--most", "2"]
    command += ["--loss", "standard", "--seq-len", "64", "--global-batch-size", "8"]
    command += ["--precision", "fp32", "--minutes", "5", "--out", "best", "-o", "machine.json"]
    output = run(tmp_path, *command).output()
    answer = json.loads(output[output.index('{\n  "schema_version"') : output.rindex("\n}") + 2])
    ran = [each for each in answer["plans"] if each["step"]]
    assert len(ran) == 2, answer
    assert answer["winner"] in {each["name"] for each in ran}
    assert answer["is_on_planned_gpus"]
    assert all(each["step"]["seconds"] > 1e-3 for each in ran)
    plan = json.loads((tmp_path / "best" / "plan.json").read_text())
    assert plan["measured"]["steps"] >= 2
    runs = json.loads((tmp_path / "machine.json").read_text())["runs"]
    assert [each["source"] for each in runs[-2:]] == ["planner race"] * 2
    marks = (_environment(each) for each in Path("/proc").glob("[0-9]*/environ"))
    assert not any(f"PWD={tmp_path}".encode() in each for each in marks)


def _environment(file: Path) -> bytes:
    try:
        return file.read_bytes() if int(file.parent.name) != os.getpid() else b""
    except OSError:
        return b""
