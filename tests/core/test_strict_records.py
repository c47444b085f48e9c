"""What annotations ask for; the doors' own words are in tests/catalog, tests/machine and tests/hardware."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from planner.core.strict_records import Between, Few, Line, MisfitError, read_record


@dataclass(frozen=True, kw_only=True)
class Part:
    share: Annotated[float, Between(0, 1)]


@dataclass(frozen=True, kw_only=True)
class Whole:
    name: Annotated[str, Line(5, shortest=1)]
    parts: Annotated[tuple[Part, ...], Few(2)] = ()
    flag: bool | tuple[str, bool] = False
    kind: Literal["a", "b"] | None = None
    by_name: Mapping[Annotated[str, Line(3)], int] = field(default_factory=dict)
    anything: Any = None


def test_a_mapping_becomes_its_dataclass() -> None:
    table: dict[str, Any] = {
        "name": "x",
        "parts": [{"share": 1}],
        "flag": ["bias", True],
        "kind": None,
        "by_name": {"a": 2},
        "anything": [{}],
    }
    assert read_record(Whole, table) == Whole(
        name="x",
        parts=(Part(share=1.0),),
        flag=("bias", True),
        by_name={"a": 2},
        anything=[{}],
    )


@pytest.mark.parametrize(
    ("change", "problem", "path"),
    [
        ({"name": ""}, "check", "name"),
        ({"name": "two\n"}, "check", "name"),
        ({"name": 3}, "type", "name"),
        ({"name": ...}, "missing", "name"),
        ({"nome": "x"}, "unknown", ""),
        ({"parts": [{"share": 0}] * 3}, "check", "parts"),
        ({"parts": [{"share": 0}, {"share": 2}]}, "check", "parts[1].share"),
        ({"parts": [{"share": True}]}, "type", "parts[0].share"),
        ({"parts": [{"share": 10**400}]}, "type", "parts[0].share"),
        ({"parts": [{}]}, "missing", "parts[0].share"),
        ({"flag": ["bias"]}, "type", "flag"),
        ({"kind": "c"}, "type", "kind"),
        ({"by_name": {"long": 2}}, "check", "by_name.long"),
        ({"by_name": {"a": None}}, "type", "by_name.a"),
    ],
)
def test_the_first_misfit_is_named_by_its_path(
    change: dict[str, Any], problem: str, path: str
) -> None:
    table = {key: value for key, value in ({"name": "x"} | change).items() if value is not ...}
    with pytest.raises(MisfitError) as error:
        read_record(Whole, table)
    assert (error.value.problem, error.value.path) == (problem, path)


def test_a_misfit_says_what_was_asked_for_and_which_key_was_meant() -> None:
    with pytest.raises(MisfitError) as error:
        read_record(Whole, {"name": "x", "parts": [{"shar": 1}]})
    assert (error.value.value, error.value.nearest) == ("shar", "did you mean share?")
    with pytest.raises(MisfitError) as error:
        read_record(Part, {"share": "all"})
    assert (error.value.kind, error.value.check) == (float, Between(0, 1))
