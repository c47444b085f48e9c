import numpy as np
from numpy.typing import NDArray

from planner.core.remembered import remembered


def test_the_same_arguments_are_asked_once_and_equal_ones_again() -> None:
    asked: list[object] = []

    @remembered(2)
    def length(values: list[int], times: int = 1) -> int:
        asked.append(values)
        return len(values) * times

    one, other = [1, 2], [1, 2]
    assert [length(one), length(one), length(other), length(one)] == [2] * 4
    assert asked == [one, other]
    assert asked[1] is other
    assert length(one, times=3) == 6


def test_only_the_last_are_kept() -> None:
    asked: list[int] = []

    @remembered(2)
    def square(value: NDArray[np.int64]) -> float:
        asked.append(int(value[0]))
        return float(value[0] ** 2)

    columns = [np.array([each]) for each in range(3)]
    assert [square(column) for column in (*columns, columns[0])] == [0, 1, 4, 0]
    assert asked == [0, 1, 2, 0]
