"""A frozen class is what the library's dataclass would be, made more quickly."""

import pickle
from copy import deepcopy
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import Any

import pytest

from planner.core.frozen import frozen


@frozen
class Made:
    """With what fields may have."""

    first: int
    second: str = "two"
    third: list[int] = field(default_factory=list, compare=False)
    hidden: str = field(default="", repr=False)


@frozen
class Inherits(Made):
    """And one more."""

    fourth: float = 4.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "fourth", 2 * self.fourth)


@frozen
class Alone:
    """With one field."""

    only: Any = None


@frozen
class Empty:
    """With none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    first: int
    second: str = "two"
    third: list[int] = field(default_factory=list, compare=False)
    hidden: str = field(default="", repr=False)


def test_it_says_what_the_library_says() -> None:
    made, library = Made(first=1, hidden="h"), Library(first=1, hidden="h")
    assert repr(made) == repr(library).replace("Library", "Made")
    assert asdict(made) == asdict(library)
    assert [each.name for each in fields(made)] == [each.name for each in fields(library)]


def test_defaults_are_each_instances_own() -> None:
    one, other = Made(first=1), Made(first=1)
    assert one.third == []
    assert one.third is not other.third
    assert Inherits(first=1, fourth=3.0).fourth == 6.0


def test_equal_is_what_has_the_same_values_of_the_same_class() -> None:
    assert Made(first=1, third=[1]) == Made(first=1, third=[2])
    assert Made(first=1) != Made(first=2)
    assert Made(first=1) != Inherits(first=1)
    assert Alone(only=1) == Alone(only=1) != Alone(only=2)
    assert Empty() == Empty()
    assert len({Made(first=1), Made(first=1), Made(first=2), Empty(), Empty()}) == 3


def test_a_column_is_equal_to_itself() -> None:
    """As in a tuple, which asks for identity first: arrays have no single truth."""

    class Column:
        def __eq__(self, _other: object) -> bool:
            raise ValueError

        __hash__ = None  # type: ignore[assignment]

    column = Column()
    assert Alone(only=column) == Alone(only=column)


def test_nothing_is_set_or_deleted() -> None:
    made = Made(first=1)
    with pytest.raises(FrozenInstanceError, match="'first'"):
        made.first = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="'first'"):
        del made.first
    with pytest.raises(FrozenInstanceError, match="'new'"):
        made.new = 2  # type: ignore[attr-defined]


def test_it_is_given_by_keywords_alone_and_each_must_be_there() -> None:
    make: Any = Made
    for arguments, keywords in ((), {}), ((1,), {}), ((), {"first": 1, "fifth": 5}):
        with pytest.raises(TypeError, match=r"Made\.__init__\(\)"):
            make(*arguments, **keywords)


def test_it_is_copied_and_goes_to_another_process() -> None:
    made = Inherits(first=1, third=[3])
    for copied in (deepcopy(made), pickle.loads(pickle.dumps(made))):  # noqa: S301
        assert (copied, copied.third) == (made, made.third)
    assert replace(made, first=5, fourth=made.fourth) == Inherits(first=5, fourth=8.0)
