"""Whatever a machine file holds, it is refused by its field or planned with, and no number of the answer is a nonsense."""

import json
import math
import os
import random
from copy import deepcopy
from typing import Any

import pytest
from test_document import WHOLE

from planner import answers

CASES = int(os.environ.get("MACHINE_CASES", "40"))
"""Of each test run; `MACHINE_CASES=2000` tries as many."""
_ODD: tuple[Any, ...] = (
    *(0, -1, 1, 2, 1e-9, 1e9, 1e17, 2**31, 1e300, 10**400, True, None, "", "x" * 300, [], {}),
    *([{}], [[]], {"kind": 1}, "bf16", "fp8", "all_gather", "\x1b[2J", 1.5),
)
_REQUEST = {
    "model": "gpt2",
    "recipe": {"sequence_length": 1024, "global_batch_size": 64},
    "strategy": {"zero_stage": 2, "micro_batch_size": 2},
}


def _mutated(dice: random.Random) -> dict[str, Any]:
    """Return the whole machine with one to three of its values changed, doubled or taken out."""
    machine = deepcopy(WHOLE)
    for _ in range(dice.randint(1, 3)):
        part: Any = machine
        while True:
            keys = list(part) if isinstance(part, dict) else list(range(len(part)))
            if not keys:
                break
            key = dice.choice(keys)
            if isinstance(part[key], dict | list) and part[key] and dice.random() < 0.85:
                part = part[key]
                continue
            if dice.random() < 0.15:
                del part[key]
            else:
                part[key] = dice.choice(_ODD)
            break
    return machine


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for each in value.values() for number in _numbers(each)]
    if isinstance(value, list):
        return [number for each in value for number in _numbers(each)]
    return [value] if isinstance(value, float) else []


@pytest.mark.filterwarnings("error")
def test_a_mutated_machine_is_refused_or_planned_with() -> None:
    dice = random.Random(20)
    planned = 0
    for _ in range(CASES):
        machine = _mutated(dice)
        (answer,) = list(
            answers.answer_batch([{**_REQUEST, "machine": machine}], allow_paths=False)
        )
        said: dict[str, Any] = dict(answer)
        text = json.dumps(said)
        if said["ok"]:
            planned += 1
            assert all(math.isfinite(number) for number in _numbers(said)), machine
            assert "\x1b" not in text
            assert said["time"]["step_seconds"] > 0
        else:
            assert said["error"]["field"].startswith(("machine", "cluster")), said
            assert "\\u001b" not in text
    assert planned > 0
