import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
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


ROOT = Path(__file__).parents[2]
NAMES = ("str", "bool", "Any", "type[", "tuple[tuple[str")
"""What there are few of: names of records, where an unknown one is an error, and classes."""


def kept_for_ever(folder: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each function whose results are kept without bound, with the types of its arguments."""
    for file in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef):
                continue
            if any(ast.unparse(each) == "cache" for each in node.decorator_list):
                arguments = (*node.args.args, *node.args.kwonlyargs)
                kinds = [ast.unparse(each.annotation) for each in arguments if each.annotation]
                yield f"{file.stem}.{node.name}", kinds


@pytest.mark.parametrize("folder", ["planner", "api", "web"])
def test_without_bound_nothing_is_kept_by_numbers_and_models_that_a_client_may_say(
    folder: str,
) -> None:
    found = dict(kept_for_ever(folder))
    assert found
    wrong = {
        name: kinds
        for name, kinds in found.items()
        if not all(kind.startswith(NAMES) for kind in kinds)
    }
    assert wrong == {}
