"""`Machine` -> JSON, without what was not measured."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from planner.core.errors import InvalidInputError
from planner.machine.document import KIND, VERSION, Machine
from planner.machine.reading import one_line


def machine_json(machine: Machine) -> dict[str, Any]:
    """Return what `planner.machine.reading.parse_machine` reads as the same machine."""
    return {"kind": KIND, "version": VERSION, **_object(machine)}


def write_machine(machine: Machine, file: str | Path) -> None:
    """Write a machine.json.

    Raises:
        InvalidInputError: it cannot be written.
    """
    text = json.dumps(machine_json(machine), indent=1, allow_nan=False) + "\n"
    try:
        Path(file).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise InvalidInputError(
            f"cannot write {one_line(str(file))}: {said}", field="--output"
        ) from None


def _object(part: Any) -> dict[str, Any]:
    found = {each.name: _plain(getattr(part, each.name)) for each in fields(part)}
    return {name: value for name, value in found.items() if value not in (None, "", [], {})}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return _object(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value
