"""A table of a TOML record -> the dataclass that describes it, key by key."""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin

from planner.core.errors import did_you_mean
from planner.core.units import GIB, GIGA, KIB, MIB, MICRO, TERA

Record = TypeVar("Record")

_UNITS: Mapping[str, tuple[str, float]] = {
    "kib": ("bytes", KIB),
    "mib": ("bytes", MIB),
    "gib": ("bytes", GIB),
    "gb_per_s": ("bytes_per_second", GIGA),
    "gbit_per_s": ("bytes_per_second", GIGA / 8),
    "per_s": ("per_second", 1),
    "us": ("seconds", MICRO),
    "s": ("seconds", 1),
    "tflops": ("flops", TERA),
}
"""What a unit in a key becomes in the name of the field, and the factor of its values."""
_UNIT = re.compile(rf"(^|_)({'|'.join(_UNITS)})(?=_per_|$)")


class InvalidRecordError(ValueError):
    """A record of `data/` does not say what its dataclass asks for."""


def build(kind: type[Record], table: Mapping[str, Any], path: str) -> Record:
    """Return the table as a dataclass, in base units.

    A key is a field's name, or that name with one of the record units in place of the base unit:
    `context_mib` fills `context_bytes`. Fields with a default may be left out.

    Args:
        kind: the dataclass; its annotations may name dataclasses, enums, literals, and tuples and
            mappings of them.
        table: as TOML reads it.
        path: where it stands, for the error.

    Raises:
        InvalidRecordError: a key is unknown, missing or given twice, or a value is of another type.
    """
    known, values = _fields(kind), {}
    for key, value in table.items():
        name, factor = in_base_units(key)
        if name not in known:
            raise InvalidRecordError(f"{path}.{key}: unknown key; {_nearest(name, known)}")
        if name in values:
            raise InvalidRecordError(f"{path}.{name}: given twice")
        values[name] = _value(known[name].type, value, factor, f"{path}.{key}")
    for name, field in known.items():
        if name not in values and field.default is field.default_factory is MISSING:
            raise InvalidRecordError(f"{path}.{name}: missing")
    return kind(**values)


@cache
def in_base_units(key: str) -> tuple[str, float]:
    """Return a key with the base unit in place of a record's, and the factor between the two."""
    match = _UNIT.search(key)
    if match is None:
        return key, 1
    unit, factor = _UNITS[match[2]]
    return f"{key[: match.end(1)]}{unit}{key[match.end() :]}", factor


def _fields(kind: Any) -> Mapping[str, Field[Any]]:
    return {field.name: field for field in fields(kind)}


def _nearest(name: str, known: Mapping[str, object]) -> str:
    return did_you_mean(name, known) or f"known: {', '.join(known)}"


def _value(kind: Any, value: Any, factor: float, path: str) -> Any:
    """Return a value as its annotation has it; a factor goes down to the numbers."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, Mapping):
        return build(kind, value, path)
    if origin is Mapping and isinstance(value, Mapping):
        return {
            _key(arguments[0], key, path): _value(arguments[1], entry, factor, f"{path}.{key}")
            for key, entry in value.items()
        }
    if origin is tuple and isinstance(value, list):
        kinds = arguments[:1] * len(value) if Ellipsis in arguments else arguments
        if len(kinds) == len(value):
            pairs = enumerate(zip(kinds, value, strict=True))
            return tuple(_value(each, entry, factor, f"{path}[{i}]") for i, (each, entry) in pairs)
    return _scalar(kind, value, factor, path)


def _key(kind: Callable[[str], Any], key: str, path: str) -> Any:
    """Return a key of a mapping as its annotation has it; TOML has strings alone."""
    try:
        return kind(key)
    except ValueError:
        raise InvalidRecordError(f"{path}.{key}: unknown key") from None


def _scalar(kind: Any, value: Any, factor: float, path: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, Enum):
        if str(value).upper() in kind.__members__:
            return kind[str(value).upper()]
    elif get_origin(kind) is Literal:
        if value in get_args(kind):
            return value
    elif any(type(value) in _TAKEN.get(one, ()) for one in get_args(kind) or (kind,)):
        return value * factor if factor != 1 else value
    raise InvalidRecordError(f"{path}: {value!r} is not of type {getattr(kind, '__name__', kind)}")


_TAKEN: Mapping[type, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    float: (int, float),
    str: (str,),
}
"""What TOML writes for a type."""
