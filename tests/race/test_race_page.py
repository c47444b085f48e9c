"""The screen of docs/race.md is what is printed; `--update-golden` rewrites it."""

from dataclasses import replace
from pathlib import Path

import log_samples
from raced import entrant
from test_docs import ROOT, check_block, update

from planner.calibrate.logs.reading import read_log_bytes
from planner.race.results import race_answer, race_table, race_text
from planner.race.rounds import BEHIND, FAILED, KNOWN, OPEN, Standing
from planner.report.values import Terminal

__all__ = ["update"]
STEPS = [0.0, 0.01, -0.01, 0.005, -0.005, 0.002, -0.002, 0.015, 0.003, -0.004]


def standing(folder: Path, planned: float, measured: float, state: str, why: str = "") -> Standing:
    one = entrant(folder, "exit 1")
    step = replace(one.planned.step_seconds, likely=planned)
    one = replace(one, planned=replace(one.planned, step_seconds=step))
    seconds = [measured * (1 + each) for each in STEPS] if measured else []
    log = log_samples.script_records(measured or 1.0, 7.38, reserved_gib=8.1)
    readings = [read_log_bytes("run.log", log.encode())] if measured else []
    return Standing(
        entrant=one, starts=[seconds] * bool(seconds), readings=readings, state=state, why=why
    )


def test_plans_that_overlap_are_said_to_be_too_close(tmp_path: Path) -> None:
    near = [standing(tmp_path / name, 0.1, 0.1, OPEN) for name in ("a", "b")]
    title = race_table(race_answer(near, is_stopped=False, is_comparable=True)).title
    assert ("too close to tell" in title, "is the fastest" in title) == (True, False)


def test_starts_of_a_plan_that_differ_are_said(tmp_path: Path) -> None:
    """Each start is known to 2 %, and tells 4 % more or less than the next one."""
    one, other = (standing(tmp_path / name, 0.1, 0.1, KNOWN) for name in ("a", "b"))
    one.starts.append([1.04 * each for each in one.starts[0]])
    other.starts.append([1.01 * each for each in other.starts[0]])
    table = race_table(race_answer([one, other], is_stopped=False, is_comparable=True))
    assert table.title == "b and a are too close to tell; b had the least median step"
    assert table.rows[1].cells[-1] == "1.49 % slower, 20 steps in 2 starts, 4 % apart"


def test_one_reason_of_all_plans_stands_once(tmp_path: Path) -> None:
    why = "no controller answers"
    failed = [standing(tmp_path / name, 0.1, 0.0, FAILED, why) for name in ("a", "b", "c")]
    text = race_text(race_answer(failed, is_stopped=False, is_comparable=True), Terminal(width=100))
    assert (text.count(why), text.count(FAILED)) == (1, 3)


def test_the_screen_is_what_is_printed(tmp_path: Path, *, update: bool) -> None:
    short = "CUDA out of memory (ERR005): 2.00 GiB asked for, 1.10 GiB free"
    standings = [
        standing(tmp_path / "zero-1", 0.0914, 0.1, BEHIND),
        standing(tmp_path / "ddp", 0.0961, 0.0893, KNOWN),
        standing(tmp_path / "ddp, compiled", 0.0934, 0.0, FAILED, short),
    ]
    answer = race_answer(standings, is_stopped=False, is_comparable=True)
    text = race_text(answer, Terminal(width=100))
    screen = f"```console\n$ planner race gpt2 --gpu l40s --gpus 2\n{text}\n```\n"
    check_block("race", screen, update=update, page=ROOT / "docs/race.md")
