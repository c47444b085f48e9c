"""`Machine` -> JSON, without what was not measured."""

import errno
import json
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from planner.core.errors import InvalidInputError
from planner.machine.document import KIND, VERSION, Machine
from planner.machine.reading import one_line

_IN_PLACE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY})
"""Of a file that alone may be written: its folder may not, or it is mounted by itself, as into a container."""


def machine_json(machine: Machine) -> dict[str, Any]:
    """Return what `planner.machine.reading.parse_machine` reads as the same machine."""
    return {"kind": KIND, "version": VERSION, **_object(machine)}


def write_machine(machine: Machine, file: str | Path) -> None:
    """Write a machine.json, whole or not at all: a full disk leaves the one that is there.

    Raises:
        InvalidInputError: it cannot be written.
    """
    text = json.dumps(machine_json(machine), indent=1, allow_nan=False) + "\n"
    try:
        _replace(Path(file), text)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise InvalidInputError(
            f"cannot write {one_line(str(file))}: {said}", field="--output"
        ) from None


def _replace(path: Path, text: str) -> None:
    if path.exists() and not path.is_file():  # a pipe, or /dev/stdout
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve()  # what a link leads to
    new = path.with_name(f".{path.name[:100]}.{token_hex(8)}.new")
    try:
        new.write_text(text, encoding="utf-8")
        if path.exists():
            new.chmod(stat.S_IMODE(path.stat().st_mode))
        new.replace(path)
    except OSError as error:
        if error.errno not in _IN_PLACE or not path.is_file():
            raise
        path.write_text(text, encoding="utf-8")
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def _object(part: Any) -> dict[str, Any]:
    found = {each.name: _plain(getattr(part, each.name)) for each in fields(part)}
    return {name: value for name, value in found.items() if value not in (None, "", [], {})}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return _object(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value
