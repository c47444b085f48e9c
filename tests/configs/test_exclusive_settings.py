"""Settings that a tool refuses together are found; the same file without them is right."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from planner.configs.found import Setup
from planner.configs.recognise import recognise
from planner.configs.rules import faults

TOOLS = tomllib.loads((Path(__file__).parent / "exclusive.toml").read_text(encoding="utf-8"))
CASES = [
    pytest.param(name, extra, id=f"{name}-{'-'.join(map(str, extra))}")
    for name, tool in TOOLS.items()
    for extra in tool["refused"]
]


def errors(settings: dict[str, Any]) -> list[str]:
    text = "\n".join(f"{key}: {json.dumps(value)}" for key, value in settings.items())
    found = faults(Setup(found=recognise(text, "a.yaml"), texts={"a.yaml": text}))
    return [rule.code for rule, fault in found if (fault.level or rule.severity) == "error"]


@pytest.mark.parametrize(("name", "extra"), CASES)
def test_what_a_tool_refuses_is_found(name: str, extra: dict[str, Any]) -> None:
    assert set(errors({**TOOLS[name]["base"], **extra})) == {"CFG086"}


@pytest.mark.parametrize("name", TOOLS)
def test_the_base_is_right(name: str) -> None:
    assert errors(TOOLS[name]["base"]) == []
