"""A table of a TOML record -> the dataclass that describes it, in base units."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from planner.core.strict_records import MisfitError, read_record
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
_OF_FILES = {"bytes_per_second": "gb_per_s", "flops": "tflops", "seconds": "us"}
"""How a base unit is written in a file; a field of bytes may be an element's, which has no unit of files."""
_BASE = re.compile(rf"(?<![^\W_])({'|'.join(_OF_FILES)})(?=_per_|\b)")
_UNIT = re.compile(rf"(^|_)({'|'.join(_UNITS)})(?=_per_|$)")


class InvalidRecordError(ValueError):
    """A record of `data/` does not say what its dataclass asks for."""


def build(kind: type[Record], table: Mapping[str, Any], path: str) -> Record:
    """Return the table as a dataclass, in base units.

    A key is a field's name, or that name with one of the record units in place of the base unit:
    `context_mib` fills `context_bytes`. Rates, FLOPs and seconds have a unit of files.

    Args:
        kind: the dataclass; see `planner.core.strict_records.read_record`.
        table: as TOML reads it.
        path: where it stands, for the error.

    Raises:
        InvalidRecordError: a key is unknown, missing or given twice, or a value is of another type.
    """
    try:
        return read_record(kind, table, path, in_base_units)
    except MisfitError as error:
        wanted = getattr(error.kind, "__name__", error.kind)
        nearest = _BASE.sub(lambda base: _OF_FILES[base[1]], error.nearest)
        said = {
            "unknown": f"{error.path}.{error.value}: unknown key; {nearest}",
            "missing": f"{error.path}: missing",
            "twice": f"{error.path}: given twice",
        }.get(error.problem, f"{error.path}: {error.value!r} is not of type {wanted}")
        raise InvalidRecordError(said) from None


@cache
def in_base_units(key: str) -> tuple[str, float]:
    """Return a key with the base unit in place of a record's, and the factor between the two."""
    match = _UNIT.search(key)
    if match is None:
        return _BASE.sub(r"\1, a base unit", key), 1  # no field has that name
    unit, factor = _UNITS[match[2]]
    return f"{key[: match.end(1)]}{unit}{key[match.end() :]}", factor
