"""A tiny bundle, run by `planner verify` as its user would."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from launched import GPT2, run

PLANNER = str(Path(sys.executable).with_name("planner"))
STEPS = 5


@pytest.mark.parametrize("target", ["torchrun", "trainer"])
def test_a_bundle_runs_and_is_read(target: str, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(GPT2))
    asked = ["suggest", "mine", "--gpus", "2", "--seq-len", "16", "--global-batch-size", "16"]
    subprocess.run(
        [PLANNER, *asked, "--target", target, "--out", "bundle"], cwd=tmp_path, check=True
    )
    before = sorted(path for path in (tmp_path / "bundle").rglob("*") if path.is_file())
    command = [PLANNER, "verify", "bundle", "--cpu", "--steps", str(STEPS), "--json"]
    command += ["--target", target]
    output = run(tmp_path, *command).output()
    answer = json.loads(output[output.index('{\n  "schema_version"') :])
    assert answer["ok"] is None
    assert "CPUs" in answer["notes"][-1]
    assert answer["step_seconds"] > 0
    assert answer["log"]["steps"] + answer["log"]["warm_up_steps"] == STEPS
    assert not answer["log"]["damaged_lines"]
    after = (path for path in (tmp_path / "bundle").rglob("*") if "__pycache__" not in path.parts)
    assert sorted(path for path in after if path.is_file()) == before
