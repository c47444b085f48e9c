"""The screens of docs/verify.md are what is printed; `--update-golden` rewrites them."""

import json
import re
from pathlib import Path

import log_samples
import pytest
from test_docs import ROOT, check_block, console, update
from test_verdicts import plan_of

from planner.calibrate.logs.reading import RECOGNISERS

__all__ = ["update"]
PAGE = ROOT / "docs/verify.md"


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    plan = plan_of()
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / "plan.json").write_text(json.dumps(plan))
    monkeypatch.chdir(tmp_path)
    seconds = plan["chosen"]["time"]["step_seconds"]
    peak = plan["chosen"]["memory"]["peak_bytes"] / 2**30
    for name, slower in (("run", 1.02), ("slow", 1.4)):
        log = log_samples.script_records(seconds * slower, peak, reserved_gib=peak * 1.04)
        Path(f"{name}.log").write_text(log)
    Path("trace.json").write_text(log_samples.trace(seconds * 1.4))
    return tmp_path


@pytest.mark.usefixtures("bundle")
@pytest.mark.parametrize(
    ("marker", "command"),
    [
        ("passed", "verify run.log --plan plan"),
        ("failed", "verify slow.log --plan plan --trace trace.json"),
    ],
)
def test_the_screens_are_what_is_printed(
    marker: str, command: str, monkeypatch: pytest.MonkeyPatch, *, update: bool
) -> None:
    check_block(marker, console(tuple(command.split()), monkeypatch), update=update, page=PAGE)


def test_the_page_names_every_kind_of_log() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    for kind in RECOGNISERS:
        name = kind.name.replace("the planner's script", "the planner's launch files")
        assert any(row.startswith(name) for row in rows), name
