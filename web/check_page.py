"""Configurations of other tools, judged, as a page."""

import re
from collections.abc import Mapping
from typing import Any

from planner.core.errors import InvalidInputError
from planner.gate.configurations import COMMAND, Asked, judge_configurations
from planner.gate.limits import Check
from web.tool import Item, Told, read_tool

_FILES = 3
_LANGUAGES: Mapping[str, re.Pattern[str]] = {
    "config.toml": re.compile(r"^\s*\[[\w.]+\]\s*$", re.MULTILINE),
    "config.json": re.compile(r"\A\s*[\[{]"),
    "launch.sh": re.compile(
        r"\A\s*#!.*sh\b|^\s*(?:torchrun|deepspeed|accelerate|srun|sbatch|python3?) ", re.MULTILINE
    ),
    "train.py": re.compile(r"^\s*(?:import|from) \w|Arguments\(|Accelerator\(", re.MULTILINE),
}
"""What a text looks like by the ending of its language; anything else is read as yaml."""

CHECK = read_tool("check")


def checked(values: Mapping[str, str]) -> Told | None:
    """Return the verdict on what was pasted; None of nothing.

    Raises:
        PlannerError: a file cannot be read, or the model or the GPU is not known.
    """
    if not values:
        return None
    pasted = [f"file{each}" for each in range(1, _FILES + 1) if f"file{each}" in values]
    fields = {f"{each}-{_name(values[name])}": name for each, name in enumerate(pasted, 1)}
    if "command" in values:
        fields[COMMAND] = "command"
    if not fields:
        raise InvalidInputError("nothing to check", hint="paste a file or a command", field="file1")
    numbers = {name: int(value) for name, value in CHECK.read_numbers(values).items()}
    cluster: dict[str, Any] = {
        name: numbers[name] for name in ("gpus_per_node", "nodes") if name in numbers
    }
    gpu = {"gpu": values["gpu"]} if "gpu" in values else {}
    length = {name: numbers[name] for name in ("sequence_length",) if name in numbers}
    asked = Asked(
        model=values.get("model"),
        cluster={**cluster, **gpu},
        recipe=length,
        allow_paths=False,
        fields=fields,
    )
    verdict = judge_configurations({file: values[name] for file, name in fields.items()}, asked)
    wrong = [check for check in verdict.checks if check.level != "pass"]
    several = len(fields) > 1
    return Told(
        title=_headline(wrong, verdict.document.title),
        items=tuple(_item(check, several=several) for check in wrong),
        blocks=(("What mends it", verdict.patch),) if verdict.patch else (),
        notes=tuple(map(CHECK.labelled, verdict.notes)),
    )


def _name(text: str) -> str:
    for ending, looks_so in _LANGUAGES.items():
        if looks_so.search(text):
            return ending
    return "config.yaml"


def _headline(wrong: list[Check], tools: str) -> str:
    errors = sum(check.level == "error" for check in wrong)
    warnings = len(wrong) - errors
    said = [f"{errors} error{'s'[: errors > 1]}"] if errors else []
    said += [f"{warnings} warning{'s'[: warnings > 1]}"] if warnings else []
    return f"{' and '.join(said) or 'Nothing wrong'}: {tools or 'no settings were found'}"


def _item(check: Check, *, several: bool) -> Item:
    line = f"line {check.line}" if check.file else ""
    place = f"{check.file}, {line}" if several and line else line
    return Item(
        text=check.message,
        code=check.code,
        level={"error": "blocker"}.get(check.level, check.level),
        note=": ".join(said for said in (place, check.hint) if said),
    )
