"""Which steps of a log count: several runs or ranks in one file, stalls, numbers of other languages."""

import log_samples
import pytest

from planner.calibrate.logs.reading import Reading, read_log_bytes
from planner.calibrate.logs.steps import number


def read(*lines: str) -> Reading:
    return read_log_bytes("run.log", "\n".join(lines).encode())


def test_of_a_run_that_was_started_again_at_another_speed_the_later_counts() -> None:
    slow = log_samples.script_records(step_seconds=1.0)
    for first, later, seconds in ((slow, None, 0.5), (None, slow, 1.0)):
        both = [text or log_samples.script_records() for text in (first, later)]
        reading = read(*both)
        assert reading.steady is not None
        assert 16 * 512 / reading.steady.value == pytest.approx(seconds)
        assert reading.notes == (
            "its steps begin again at another speed: 12 steps of an earlier run are left out",
        )


def test_one_that_ended_at_once_leaves_the_run_before_it() -> None:
    again = log_samples.script_records().splitlines()[0]
    reading = read(log_samples.script_records(), again)
    assert reading.steady is not None
    assert reading.steady.steps == log_samples.STEPS - 1


def test_a_record_says_what_it_ran_on() -> None:
    assert read(log_samples.script_records(device="NVIDIA L40S")).gpu == "NVIDIA L40S"


def test_ranks_one_after_the_other_and_a_run_that_went_on_are_one_run() -> None:
    lines = log_samples.torchtitan().splitlines()
    ranks = [line.replace("[rank0]", "[rank1]") for line in lines]
    for reading in (read(*lines, *ranks), read(*lines[:12], *lines[8:])):
        assert not reading.notes
        assert reading.steady is not None
        assert reading.steady.steps == log_samples.STEPS - 1


def test_what_stalls_take_is_said() -> None:
    lines = log_samples.nanogpt().splitlines()
    lines[7] = lines[7].replace("time 500.00ms", "time 9000.00ms")
    reading = read(*lines)
    assert reading.steady is not None
    assert reading.steady.value == pytest.approx(0.501, rel=3e-3)
    assert reading.steady.stalled == 1
    assert reading.notes[0].startswith("1 of 11 steps took more than twice as long, 60.7 % of all")
    assert not read(log_samples.nanogpt()).notes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234", 1234.0),
        ("1,234,567.5", 1234567.5),
        ("1,234,", 1234.0),
        ("12,5", None),
        ("45000,5", None),
        ("1,2,3", None),
        ("1,25K", None),
    ],
)
def test_a_decimal_comma_is_no_thousand(text: str, value: float | None) -> None:
    assert number(text) == value


@pytest.mark.parametrize("unit", ["iter/s", "s/it"])
@pytest.mark.parametrize("quote", ["'", '"'])
def test_ms_swifts_last_mean_is_the_runs(unit: str, quote: str) -> None:
    reading = read(log_samples.swift(unit).replace("'", quote))
    assert reading.log is not None
    assert reading.steady is not None
    assert reading.steady.value == pytest.approx(5.0 * (1 + 3 / 40), rel=1e-4)
    assert reading.log.reserved_bytes == 74.0 * 2**30
    assert reading.figures in {f"{seconds} s a step, 74.0 GiB reserved" for seconds in (5.37, 5.38)}
    assert reading.log.is_mean
    assert not reading.unread


def test_a_bar_beside_ms_swifts_lines_comes_first() -> None:
    reading = read(log_samples.swift(), log_samples.bars(each=4.0, steps=60))
    assert reading.steady is not None
    assert reading.steady.value == pytest.approx(4.0)
