"""JSON -> `Machine`, strictly: what is unknown, missing, of another type or out of bounds is refused by its path."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import date
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin

from planner.core.errors import InvalidInputError, did_you_mean
from planner.core.files import decode_text, read_limited
from planner.core.strict_json import parse_json
from planner.machine.bounds import Between, Few
from planner.machine.document import KIND, VERSION, Machine

LARGEST_FILE = 2**22
"""Bytes of a file that are read: several times those of every curve at once."""
LONGEST_TEXT = 200
MOST_NAMES = 100
DEEPEST_REQUEST = 20
AGAIN = "write it again with `planner calibrate`"

_Part = TypeVar("_Part")
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
    if not isinstance(table, Mapping) or not is_dataclass(kind):
        raise _wrong(path, "an object", table)
    known, values = {each.name: each for each in fields(kind)}, {}
    for key, entry in table.items():
        if key not in known:
            hint = did_you_mean(str(key), known) or f"known: {', '.join(known)}"
            raise _refusal(f"unknown key {_short(key)}", hint, path)
        values[key] = _value(known[key].type, entry, f"{path}.{key}".lstrip("."))
    for name, each in known.items():
        if name not in values and each.default is each.default_factory is MISSING:
            raise _refusal(f"{name} is missing", AGAIN, f"{path}.{name}".lstrip("."))
    return kind(**values)


def one_line(text: str) -> str:
    """Return a text without what moves a terminal's cursor, cut where it is long."""
    return "".join(each if each.isprintable() else " " for each in text[:LONGEST_TEXT])


def _value(kind: Any, value: Any, path: str) -> Any:
    options = get_args(kind)
    if NoneType in options:
        wanted = next(option for option in options if option is not NoneType)
        return None if value is None else _value(wanted, value, path)
    if get_origin(kind) is Annotated:
        plain, bound = options
        _check_length(bound, value, path)
        found = _value(plain, value, path)
        _check_bounds(bound, found, path)
        return found
    if is_dataclass(kind) and isinstance(kind, type):
        return build(kind, value, path)
    if get_origin(kind) is tuple:
        return tuple(
            _value(options[0], entry, f"{path}[{index}]")
            for index, entry in enumerate(_list(value, path))
        )
    if get_origin(kind) is Mapping:
        return _names(value, path) if options[1] is str else _request(value, path)
    return _scalar(kind, value, path)


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(path, "a list", value)
    return value


def _names(value: Any, path: str) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or len(value) > MOST_NAMES:
        raise _wrong(path, f"an object of at most {MOST_NAMES} texts", value)
    return {_scalar(str, key, path): _scalar(str, text, path) for key, text in value.items()}


def _request(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or _depth(value, DEEPEST_REQUEST) < 0:
        raise _wrong(path, "an estimate request", value)
    return value


def _depth(value: Any, left: int) -> int:
    """Return how many levels are left below a value; below 0 where it is nested deeper."""
    if not isinstance(value, Mapping | list) or left < 0:
        return left
    inner = value.values() if isinstance(value, Mapping) else value
    return min((_depth(each, left - 1) for each in inner), default=left)


def _scalar(kind: Any, value: Any, path: str) -> Any:
    if kind is float and type(value) in (int, float):
        return _finite(value, path)
    if type(value) is not kind:
        names = {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}
        raise _wrong(path, names[kind], value)
    if kind is str and (len(value) > LONGEST_TEXT or not value.isprintable()):
        raise _wrong(path, f"a text of one line, at most {LONGEST_TEXT} characters", value)
    return value


def _finite(value: float, path: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _wrong(path, "a number", value)
    return number


def _check_length(bound: Between | Few, value: Any, path: str) -> None:
    if isinstance(bound, Few) and isinstance(value, list) and len(value) > bound.most:
        raise _refusal(f"{len(value):,} entries, and at most {bound.most:,} are read", "", path)


def _check_bounds(bound: Between | Few, value: Any, path: str) -> None:
    if isinstance(bound, Between) and not bound.lowest <= value <= bound.highest:
        said = f"{_short(value)} is not between {bound.lowest:g} and {bound.highest:g}"
        raise _refusal(said, "base units: bytes, seconds, bytes per second", path)


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
    text = f"{value:.6g}" if isinstance(value, float) else one_line(repr(value)[:LONGEST_TEXT])
    return text if len(text) <= _LONGEST_PIECE else f"{text[:_LONGEST_PIECE]}..."


def _refusal(message: str, hint: str, path: str) -> InvalidInputError:
    return InvalidInputError(message, hint=hint, field=f"machine.{path}".rstrip("."))
