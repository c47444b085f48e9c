"""The releases that ran the emitted scripts."""

import tomllib
from pathlib import Path

from planner.catalog.packages import packages

ROOT = Path(__file__).parents[2]


def test_the_newest_releases_are_those_that_the_tests_install() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = dict(
        line.split("==") for line in project["optional-dependencies"]["test-torch"] if "==" in line
    )
    known = {name: each.newest for name, each in packages().items()}
    both = known.keys() & pinned.keys()
    assert {"torch", "transformers", "accelerate", "peft", "bitsandbytes"} <= both
    assert {name: known[name] for name in both} == {name: pinned[name] for name in both}


def test_the_oldest_release_is_not_newer_than_the_newest() -> None:
    for each in packages().values():
        oldest, newest = ([int(part) for part in v.split(".")] for v in (each.oldest, each.newest))
        assert oldest <= newest
