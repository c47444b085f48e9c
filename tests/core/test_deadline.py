"""Work stops where nobody waits any longer, and only there."""

from time import monotonic

from planner.core import deadline


def test_without_a_deadline_there_is_always_time() -> None:
    assert not deadline.is_over()
    with deadline.sooner(1e9):
        assert not deadline.is_over()


def test_work_stops_when_the_time_is_over() -> None:
    with deadline.until(monotonic() - 1, 1.0):
        assert deadline.is_over()
    assert not deadline.is_over()


def test_time_for_what_comes_after_is_kept() -> None:
    with deadline.until(monotonic() + 1000, 1000.0):
        assert not deadline.is_over()
        with deadline.sooner(2000):
            assert deadline.is_over()
        assert not deadline.is_over()
