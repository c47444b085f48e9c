"""Logs of nccl-tests and rccl-tests: older releases, two tables of one exchange, cards by their makers' names."""

import log_samples
import pytest

from planner.calibrate.from_logs import figures_of_logs, machine_of_logs
from planner.calibrate.logs.reading import Reading, read_log_bytes
from planner.core.errors import InvalidInputError


def read(text: str) -> Reading:
    return read_log_bytes("nccl.out", text.encode())


@pytest.mark.parametrize(
    ("printed", "sizes"),
    [("5e-07", 5), ("0e+00", 5), ("1e-02", 5), ("N/A", 5), ("3", 0), ("2e+04", 0)],
)
def test_releases_that_print_the_largest_error_are_read(printed: str, sizes: int) -> None:
    text = log_samples.nccl_tests().replace("      0", f"  {printed:>5}")
    reading = read(text)
    assert sum(len(each.points) for each in reading.collectives) == sizes
    assert len(reading.damaged) == 5 - sizes


def slower(*, from_power: int) -> str:
    """A log whose messages of 2^power bytes and more take ten times as long."""
    lines = []
    for line in log_samples.nccl_tests().splitlines():
        words = line.split()
        if words[0].isdigit() and int(words[0]) >= 2**from_power:
            lines.append(line.replace(words[5], f"{float(words[5]) * 10:.2f}"))
        else:
            lines.append(line)
    return "\n".join(lines)


@pytest.mark.parametrize("from_power", [20, 23])
def test_two_tables_of_one_exchange_that_are_far_apart_are_named(from_power: int) -> None:
    one, other = read(log_samples.nccl_tests()), read(slower(from_power=from_power))
    for logs, said in (
        ((one, other), "took 10.0 times as long"),
        ((other, one), "was 10.0 times as fast"),
    ):
        figures = figures_of_logs((each, None) for each in logs)
        (line,) = (line for line in figures.lines if "later one counts" in line)
        assert line.startswith(f"  all_reduce among 8 ranks {said} as in a table before it")
        assert figures.collectives == logs[1].collectives
    again = figures_of_logs((each, None) for each in (one, one))
    assert not any("later one" in line for line in again.lines)


def test_cards_of_amd_are_known_by_what_their_driver_calls_them() -> None:
    text = log_samples.nccl_tests()
    amd = figures_of_logs(
        [(read(text.replace("NVIDIA A100-SXM4-80GB", "AMD Instinct MI300X OAM")), None)]
    )
    assert machine_of_logs(amd).cluster.gpu == "mi300x"


def test_no_machine_is_made_of_a_card_that_nothing_is_known_of() -> None:
    text = log_samples.nccl_tests().replace("NVIDIA A100-SXM4-80GB", "AMD Instinct MI999")
    with pytest.raises(InvalidInputError, match="AMD Instinct MI999, which the catalogue does not"):
        machine_of_logs(figures_of_logs([(read(text), None)]))
