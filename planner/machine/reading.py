"""JSON -> `Machine`, strictly: what is unknown, missing, of another type or out of bounds is refused by its path."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from datetime import date
from pathlib import Path
from typing import TypeVar, get_origin

from planner.core.errors import InvalidInputError
from planner.core.files import decode_text, read_limited
from planner.core.strict_json import parse_json
from planner.core.strict_records import Between, Few, Line, MisfitError, read_record
from planner.machine.document import KIND, VERSION, Machine, Nested

LARGEST_FILE = 2**22
"""Bytes of a file that are read: several times those of every curve at once."""
AGAIN = "write it again with `planner calibrate`"

_Part = TypeVar("_Part")
_LONGEST_SHOWN = 200
_LONGEST_PIECE = 40
_LARGEST_SHOWN = 10**20


def read_machine(file: str | Path) -> Machine:
    """Return what a machine.json holds.

    Raises:
        InvalidInputError: it cannot be read, or holds something else; it says where.
    """
    name = one_line(str(file))
    raw = read_limited(Path(file), name, LARGEST_FILE, hint=AGAIN, field="machine")
    text = decode_text(raw, name, hint=AGAIN, field="machine")
    try:
        value = parse_json(text)
    except ValueError as error:
        raise _refusal(f"{name} is not JSON: {one_line(str(error))}", AGAIN, "") from None
    try:
        return parse_machine(value)
    except InvalidInputError as error:
        key = error.field.removeprefix("machine").lstrip(".")
        said = ": ".join(filter(None, (name, key, error.message)))
        raise InvalidInputError(said, hint=error.hint, field=error.field) from None


def parse_machine(value: object) -> Machine:
    """Return the machine that a JSON value describes.

    Raises:
        InvalidInputError: it is of another kind or version, or a value of it cannot be; `field` says which.
    """
    if not isinstance(value, Mapping) or value.get("kind") != KIND:
        raise _refusal(f'no machine file: it has no "kind": "{KIND}"', AGAIN, "kind")
    version = value.get("version")
    if version != VERSION or type(version) is not int:
        said = (
            f"a machine file of version {_short(version)}, and this planner reads version {VERSION}"
        )
        raise _refusal(said, AGAIN, "version")
    rest = {key: entry for key, entry in value.items() if key not in ("kind", "version")}
    machine = build(Machine, rest, "")
    _check_date(machine.created)
    return machine


def build(kind: type[_Part], table: object, path: str) -> _Part:
    """Return a JSON object as a dataclass of `planner.machine.document`.

    Raises:
        InvalidInputError: a key is unknown or missing, or a value cannot be.
    """
    if not isinstance(table, Mapping):
        raise _wrong(path, "an object", table)
    try:
        return read_record(kind, table, path)
    except MisfitError as error:
        raise _refused(error) from None


def one_line(text: str) -> str:
    """Return a text without what moves a terminal's cursor, cut where it is long."""
    return "".join(each if each.isprintable() else " " for each in text[:_LONGEST_SHOWN])


def _refused(misfit: MisfitError) -> InvalidInputError:
    value, path = misfit.value, misfit.path
    if misfit.problem == "unknown":
        return _refusal(f"unknown key {_short(value)}", misfit.nearest, path)
    if misfit.problem == "missing":
        return _refusal(f"{path.rpartition('.')[2]} is missing", AGAIN, path)
    if misfit.problem == "check":
        match misfit.check:
            case Between(lowest, highest):
                said = f"{_short(misfit.kind(value))} is not between {lowest:g} and {highest:g}"
                return _refusal(said, "base units: bytes, seconds, bytes per second", path)
            case Few(most) if isinstance(value, list):
                said = f"{len(value):,} entries, and at most {most:,} are read"
                return _refusal(said, "", path)
    # A name of `software` is any text, and in no path.
    return _wrong("software" if path.startswith("software.") else path, _wanted(misfit), value)


def _wanted(misfit: MisfitError) -> str:
    match misfit.check, misfit.problem:
        case Few(most), _ if get_origin(misfit.kind) is Mapping:
            return f"an object of at most {most} texts"
        case Nested(), _:
            return "an estimate request"
        case Line(longest), "check":
            return f"a text of one line, at most {longest} characters"
    if is_dataclass(misfit.kind):
        return "an object"
    names = {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}
    return names.get(misfit.kind, "a list")


def _check_date(text: str) -> None:
    try:
        date.fromisoformat(text)
    except ValueError:
        raise _wrong("created", "a date, such as 2026-11-22", text) from None


def _wrong(path: str, wanted: str, value: object) -> InvalidInputError:
    return _refusal(f"{_short(value)} is not {wanted}", AGAIN, path)


def _short(value: object) -> str:
    if isinstance(value, Mapping | list):
        return "an object" if isinstance(value, Mapping) else "a list"
    if isinstance(value, int) and abs(value) >= _LARGEST_SHOWN:
        return "a number of many digits"
    text = f"{value:.6g}" if isinstance(value, float) else one_line(repr(value)[:_LONGEST_SHOWN])
    return text if len(text) <= _LONGEST_PIECE else f"{text[:_LONGEST_PIECE]}..."


def _refusal(message: str, hint: str, path: str) -> InvalidInputError:
    return InvalidInputError(message, hint=hint, field=f"machine.{path}".rstrip("."))
