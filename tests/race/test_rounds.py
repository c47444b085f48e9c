"""Plans that are run: who wins, who is ended early, what fails, and that nothing is left behind."""

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from raced import OOM, entrant, steps

from planner.core.units import GIB
from planner.race.odds import FEWEST, MOST_STARTS
from planner.race.process import started
from planner.race.rounds import BEHIND, FAILED, KNOWN, MISSING, OPEN, Race, Standing, run_all
from planner.race.ways import Here

RACE = Race(budget_seconds=20.0, patience_seconds=0.3)


def by_name(standings: tuple[Standing, ...]) -> dict[str, Standing]:
    return {each.entrant.name: each for each in standings}


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


def test_the_fastest_is_known_and_who_cannot_win_is_ended_early(tmp_path: Path) -> None:
    plans = [
        entrant(tmp_path / "fast", steps(0.1)),
        entrant(tmp_path / "slow", steps(0.2, number=1000, pause=0.02)),
    ]
    standings, is_stopped = run_all(plans, RACE)
    found = by_name(standings)
    assert not is_stopped
    assert found["fast"].state == KNOWN
    assert found["fast"].step is not None
    assert found["fast"].step.median == pytest.approx(0.1, rel=1e-3)
    assert FEWEST <= len(found["fast"].seconds) <= 11
    assert found["slow"].state == BEHIND
    assert len(found["slow"].seconds) < 100


def test_the_largest_memory_goes_first(tmp_path: Path) -> None:
    small, large = (entrant(tmp_path / name, steps(0.1)) for name in ("small", "large"))
    reserved = replace(large.planned.reserved_bytes, high=1e12)
    large = replace(large, planned=replace(large.planned, reserved_bytes=reserved))
    order: list[str] = []
    race = replace(RACE, show=lambda standing, _: order.append(standing.entrant.name))
    standings, _ = run_all([small, large], race)
    assert [each.entrant.name for each in standings] == ["large", "small"]


def test_others_go_by_planned_time_and_the_likely_best_first(tmp_path: Path) -> None:
    plans = [entrant(tmp_path / name, steps(0.1)) for name in ("slow", "fast")]
    seconds = replace(plans[1].planned.step_seconds, likely=0.05)
    plans[1] = replace(plans[1], planned=replace(plans[1].planned, step_seconds=seconds))
    standings, _ = run_all(plans, RACE)
    assert [each.entrant.name for each in standings] == ["fast", "slow"]


def test_who_cannot_be_2_percent_faster_is_ended_though_not_known(tmp_path: Path) -> None:
    plans = [
        entrant(tmp_path / "known", steps(0.1)),
        entrant(tmp_path / "near", steps(0.1015, number=1000, pause=0.1, jitter=0.015)),
    ]
    found = by_name(run_all(plans, replace(RACE, patience_seconds=30.0))[0])
    assert found["known"].state == KNOWN
    assert found["near"].state == OPEN
    assert len(found["near"].readings) == 1
    assert len(found["near"].seconds) < 100


def test_steps_of_all_rounds_count_together(tmp_path: Path) -> None:
    """Seven noisy steps a run are too few: the better half is run again, and again."""
    plans = [
        entrant(tmp_path / "a", steps(0.1, number=8, jitter=0.03)),
        entrant(tmp_path / "b", steps(0.101, number=8, jitter=0.03)),
    ]
    found = by_name(run_all(plans, RACE)[0])
    assert [len(each) for each in found["a"].starts] == [7, 7, 7]
    assert len(found["b"].seconds) == 7
    assert found["b"].state == OPEN


def starts_at(*seconds: float) -> str:
    """Return a script whose starts take different times a step, one after the other."""
    cases = "".join(f"{place}) {steps(each)};;\n" for place, each in enumerate(seconds))
    return f"touch starts; n=$(wc -l < starts); echo >> starts\ncase $n in\n{cases}esac\n"


def test_on_cores_the_order_of_close_plans_is_of_several_starts(tmp_path: Path) -> None:
    """The first start of the faster one was the odd one; what is far behind is not started again."""
    plans = [
        entrant(tmp_path / "odd", starts_at(0.105, 0.099, 0.1)),
        entrant(tmp_path / "even", starts_at(0.103, 0.103, 0.103)),
        entrant(tmp_path / "far", starts_at(0.12)),
    ]
    found = by_name(run_all(plans, replace(RACE, way=Here(on_cpus=True)))[0])
    assert {name: len(each.starts) for name, each in found.items()} == {
        "odd": 3,
        "even": 3,
        "far": 1,
    }
    assert found["odd"].step is not None
    assert found["odd"].step.median == pytest.approx(0.1, rel=1e-3)
    assert found["odd"].step.low == pytest.approx(0.099, rel=1e-3)
    assert (found["even"].state, found["far"].state) == (KNOWN, BEHIND)


def test_no_start_is_begun_that_the_time_left_does_not_hold(tmp_path: Path) -> None:
    plans = [entrant(tmp_path / name, f"sleep 0.6\n{steps(0.1, pause=0.1)}") for name in "ab"]
    race = replace(RACE, budget_seconds=4.0, way=Here(on_cpus=True))
    found = by_name(run_all(plans, race)[0])
    assert {each.state for each in found.values()} == {KNOWN}
    assert all(len(each.starts) < MOST_STARTS for each in found.values())


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (f"echo '{OOM}'; exit 1", "ERR005"),
        ("exit 137", "ERR006"),
        ("kill -9 $$", "ERR006"),
        ("echo 'OSError: [Errno 28] No space left on device' >&2; exit 1", "ERR083"),
        ("echo 'the planner needs tea'; exit 3", "exit status 3: the planner needs tea"),
        ("exit 3", "exit status 3: it printed nothing"),
        (
            "echo 'Using network Socket'; echo no tea; exit 3",
            "exit status 3: Using network Socket / no tea",
        ),
        (
            "printf 'Traceback (most recent call last):\\n  File \"train.py\", line 3, in f\\nRuntimeWishError: no\\n'; exit 1",
            "RuntimeWishError: no",
        ),
        (f"{steps(0.1, number=3)}sleep 100", "hangs: no step for"),
        (steps(0.1, number=1), "ended by itself after 1 step"),
        ("exit 0", "ended by itself after 0 steps"),
    ],
)
def test_a_failure_is_a_result_with_its_reason_and_the_others_go_on(
    script: str, why: str, tmp_path: Path
) -> None:
    plans = [entrant(tmp_path / "bad", script), entrant(tmp_path / "good", steps(0.1))]
    found = by_name(run_all(plans, RACE)[0])
    assert found["bad"].state == FAILED
    assert why in found["bad"].why
    assert "\n" not in found["bad"].why
    assert found["bad"].step is None
    assert found["good"].state == KNOWN


def test_what_ran_out_of_memory_says_what_it_held(tmp_path: Path) -> None:
    standings, _ = run_all([entrant(tmp_path / "bad", f"echo '{OOM}'; exit 1")], RACE)
    assert standings[0].held_bytes == pytest.approx(43.4 * GIB)


def test_a_run_without_a_first_step_ends_with_its_time(tmp_path: Path) -> None:
    standings, _ = run_all(
        [entrant(tmp_path / "bad", "sleep 100")], replace(RACE, budget_seconds=0.5)
    )
    assert standings[0].state == FAILED
    assert standings[0].why.startswith("no step in ")


def test_what_was_not_run_says_that_there_was_no_time(tmp_path: Path) -> None:
    """A budget that the first plan's start uses up."""
    plans = [entrant(tmp_path / name, f"sleep 0.5\n{steps(0.1, pause=0.2)}") for name in "ab"]
    standings, _ = run_all(plans, replace(RACE, budget_seconds=1e-9))
    assert [each.state for each in standings] == [OPEN, OPEN]
    assert all("no time was left" in each.why for each in standings)


def test_what_is_not_installed_is_not_started(tmp_path: Path) -> None:
    lacking = entrant(tmp_path / "lacking", "touch started; exit 1", missing=("deepspeed",))
    found = by_name(run_all([lacking, entrant(tmp_path / "good", steps(0.1))], RACE)[0])
    assert found["lacking"].state == MISSING
    assert not (tmp_path / "lacking" / "torchrun" / "started").exists()
    assert found["good"].state == KNOWN


@pytest.mark.parametrize("signal", ["INT", "TERM"])
def test_told_to_end_it_keeps_what_was_measured(signal: str, tmp_path: Path) -> None:
    script = f"{steps(0.1, number=4)}echo $$ > pid; kill -{signal} $PPID; sleep 100"
    plans = [entrant(tmp_path / "a", script), entrant(tmp_path / "b", "touch started")]
    standings, is_stopped = run_all(plans, replace(RACE, patience_seconds=30.0))
    assert is_stopped
    assert len(by_name(standings)["a"].seconds) == 3
    assert by_name(standings)["b"].state == OPEN
    assert not (tmp_path / "b" / "torchrun" / "started").exists()
    assert not is_there(int((tmp_path / "a" / "torchrun" / "pid").read_text()))


def test_workers_in_sessions_of_their_own_end_with_their_run_and_nothing_of_others_does(
    tmp_path: Path,
) -> None:
    """As torchrun starts its workers; here the launcher has died before them."""
    script = "setsid bash -c 'echo $$ > pid; exec sleep 100' & sleep 0.2; kill -9 $$"
    other = subprocess.Popen(["sleep", "100"])  # noqa: S607
    try:
        run_all([entrant(tmp_path / "a", script)], RACE)
        assert not is_there(int((tmp_path / "a" / "torchrun" / "pid").read_text()))
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_command_that_cannot_be_started_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), started(["no-such-program"], tmp_path, {}):
        pass


def test_a_run_that_closed_its_output_is_waited_for(tmp_path: Path) -> None:
    began = time.monotonic()
    with started(
        ["bash", "-c", "exec >&- 2>&-; sleep 0.1; exit 7"], tmp_path, dict(os.environ)
    ) as one:
        while one.read(5.0):
            pass
        assert one.status == 7
    assert time.monotonic() - began < 5
