"""docs/calibrate.md is what the commands print.

`pytest --update-golden tests/calibrate/test_calibrate_page.py` rewrites it; read the diff.
"""

import re
from pathlib import Path

import pytest
from test_docs import check_block, console

from planner.cli import calibrate

PAGE = Path(__file__).parents[2] / "docs/calibrate.md"
MADE = ("calibrate", "--runs", "runs.jsonl", "--name", "lab")
ASKED = (
    *("estimate", "meta-llama/Llama-3.1-8B", "--machine", "machine.json"),
    *("--nodes", "16", "--inter-node", "400GB/s", "--framework", "torchtitan", "--seq-len", "8192"),
    *("--global-batch-size", "256", "--precision", "bf16-mixed"),
    *(
        "--weights",
        "fp32",
        "--strategy",
        "zero-3",
        "--micro-batch-size",
        "2",
        "--recompute",
        "selective",
    ),
)
MEASURED = 2.923


def _block(name: str) -> str:
    found = re.search(f"<!-- {name} -->\n(.*?)<!-- /{name} -->", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


def test_runs_make_a_machine_and_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, update: bool
) -> None:
    lines = [line for line in _block("runs").splitlines() if line.startswith("{")]
    assert len(lines) == 2
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(calibrate, "today", lambda: "2026-11-22")
    (tmp_path / "runs.jsonl").write_text("\n".join(lines))
    check_block("calibrate", console(MADE, monkeypatch), update=update, page=PAGE)
    said = console(ASKED, monkeypatch)
    shown = said.split("\n\nFindings")[0].split("\n\nMemory of one GPU")[0] + "\n...\n```\n"
    check_block("estimate", shown, update=update, page=PAGE)
    without = [word for word in ASKED if word not in {"--machine", "machine.json"}]
    alone = _seconds(console((*without, "--gpu", "h100-sxm-96gb", "--gpus", "8"), monkeypatch))
    step, low, high = _seconds(said)
    assert low < MEASURED < high
    left = abs(step - MEASURED) / abs(alone[0] - MEASURED)
    assert left == pytest.approx(3 / 4, abs=0.05)
    assert f"the catalogue alone says {alone[0]:.2f} s" in PAGE.read_text()


def _seconds(said: str) -> tuple[float, float, float]:
    found = re.search(r"Speed +([\d.]+) s per step \(([\d.]+) s to ([\d.]+) s\)", said)
    assert found is not None
    step, low, high = (float(each) for each in found.groups())
    return step, low, high
