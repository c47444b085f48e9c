"""What `make test` collects without PyTorch has no import that needs it: known here, before a machine without it says so."""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from lanes import BASE, LANES, is_left_out, lane_of, left_out

TESTS = Path(__file__).parent
ROOT = TESTS.parent
NEVER_ALONE = ("deepspeed", "torchtitan")
"""Installed beside the extra by the Makefile."""


def collected() -> list[Path]:
    """Return the test modules of the base lane, and what pytest reads before them."""
    modules = sorted([*TESTS.rglob("test_*.py"), *TESTS.rglob("conftest.py")])
    return [module for module in modules if lane_of(module) is None]


def packages_without() -> set[str]:
    """Return the names of the packages that `test-torch` has and `test-base` has not."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    names = {
        re.split(r"[\[<>=]", each)[0].replace("-", "_")
        for each in [*extras["test"], *extras["test-torch"]]
    }
    return (names | set(NEVER_ALONE)) - {"planner"}


def imported(body: list[ast.stmt]) -> Iterator[str]:
    """Yield what a module imports when it is read: not in a function, nor for a type checker alone."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            for inner in ("body", "orelse", "handlers", "finalbody"):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from imported(getattr(node, inner, []))


@cache
def needs(module: Path) -> frozenset[str]:
    """Return the packages that a test module imports, by its helpers among the tests too."""
    found: set[str] = set()
    for name in imported(ast.parse(module.read_text(encoding="utf-8")).body):
        helper = TESTS / f"{name.replace('.', '/')}.py"
        found |= needs(helper) if helper.is_file() else {name.split(".")[0]}
    return frozenset(found)


def test_what_is_collected_without_pytorch_imports_nothing_that_needs_it() -> None:
    packages = packages_without()
    assert {"torch", "transformers", "accelerate"} <= packages
    assert {str(each.relative_to(TESTS)): needs(each) & packages for each in collected()} == {
        str(each.relative_to(TESTS)): frozenset() for each in collected()
    }


def test_what_is_left_out_there_is_left_out_for_a_reason() -> None:
    away = set(TESTS.rglob("test_*.py")) - set(collected())
    assert any(needs(each) & packages_without() for each in away)


def test_each_lane_has_its_own_tests_and_only_one_is_the_base() -> None:
    for lane in LANES:
        found = [path for path in TESTS.rglob("test_*.py") if lane_of(path) is lane]
        assert found, lane.name
        assert all(is_left_out(path, BASE) and not is_left_out(path, lane.name) for path in found)
    assert not any(is_left_out(path, BASE) for path in collected())
    assert all(is_left_out(path, lane.name) for path in collected() for lane in LANES)


def test_a_lane_that_does_not_run_is_one_line_with_its_command() -> None:
    lines = list(left_out(BASE))
    assert len(lines) == len(LANES)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for lane, line in zip(LANES, lines, strict=True):
        assert line.endswith(lane.command)
        assert f"\n{lane.command.removeprefix('make ')}:" in makefile
