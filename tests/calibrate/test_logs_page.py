"""The part of docs/calibrate.md on logs: my log -> machine.json -> a plan that is right, as it is printed."""

import json
import re
from pathlib import Path

import log_samples
import pytest
from test_calibrate_page import PAGE
from test_docs import check_block, console

from planner import answers
from planner.cli import calibrate
from planner.request.schema import parse_request

JOB = {
    "model": "gpt2",
    "cluster": {"gpu": "l40s", "gpus_per_node": 2},
    "recipe": {
        "sequence_length": 512,
        "global_batch_size": 16,
        "framework": "torch",
        "compile": False,
    },
}
ASKED = "estimate gpt2 --gpus 2 --seq-len 512 --global-batch-size 16 --strategy ddp --micro-batch-size 8"
SLOWER = 1.25


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


def test_a_log_makes_a_machine_whose_plan_has_the_run_in_its_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, update: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(calibrate, "today", lambda: "2026-11-22")
    resolved, plan = answers.suggest(parse_request(JOB), allow_paths=True)
    answer = json.dumps(answers.answer_plan(resolved, plan, None))
    planned = float(plan.chosen.step_time.step_seconds)
    (tmp_path / "plan.json").write_text(answer)
    (tmp_path / "run.log").write_text(log_samples.script_records(planned * SLOWER))
    said = console(("calibrate", "--from", "run.log", "--layout", "plan.json"), monkeypatch)
    check_block("from", said, update=update, page=PAGE)
    command = (*ASKED.split(), "--machine", "machine.json")
    estimate = console(command, monkeypatch).split("\n\n")[0] + "\n...\n```\n"
    check_block("again", estimate, update=update, page=PAGE)
    found = re.search(r"Speed +(\d+) ms per step \(([\d.]+) ms to ([\d.]+) ms\)", estimate)
    assert found is not None
    step, low, high = (float(each) / 1000 for each in found.groups())
    measured = planned * SLOWER
    assert low < measured < high
    assert planned < step < planned * 1.02
