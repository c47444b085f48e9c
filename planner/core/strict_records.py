"""A mapping -> the dataclass that describes it: what is unknown, missing, of another type or out of bounds is refused.

The catalogue, machine files and topology files are read so; each words what is refused as its readers know it.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from planner.core.errors import did_you_mean

Record = TypeVar("Record")
Problem = Literal["type", "check", "unknown", "missing", "twice"]


@dataclass(frozen=True, slots=True)
class Between:
    """A check in `Annotated`: a number in these bounds, both taken."""

    lowest: float
    highest: float

    def holds(self, value: float) -> bool:
        """Return whether a number is."""
        return self.lowest <= value <= self.highest


@dataclass(frozen=True, slots=True)
class Few:
    """A check: a list or a mapping of at most so many."""

    most: int

    def holds(self, value: Collection[Any]) -> bool:
        """Return whether one is."""
        return len(value) <= self.most


@dataclass(frozen=True, slots=True)
class Line:
    """A check: a text of one line that can be printed, of so many characters."""

    longest: int
    shortest: int = 0

    def holds(self, value: str) -> bool:
        """Return whether a text is."""
        return self.shortest <= len(value) <= self.longest and value.isprintable()


class MisfitError(ValueError):
    """The first thing in a mapping that its dataclass does not ask for.

    `path` is that of the value, or of the mapping with an unknown key, which is the `value` then; `kind` and `check`
    are what the annotation asks for, `nearest` which key was meant or which there are.
    """

    def __init__(  # noqa: PLR0913 - six facts
        self,
        problem: Problem,
        path: str,
        value: Any = None,
        *,
        kind: Any = None,
        check: Any = None,
        nearest: str = "",
    ) -> None:
        super().__init__(f"{path}: {problem}")
        self.problem, self.path, self.value = problem, path, value
        self.kind, self.check, self.nearest = kind, check, nearest


def read_record(
    kind: type[Record],
    table: Mapping[str, Any],
    path: str = "",
    field_of: Callable[[str], tuple[str, float]] = lambda key: (key, 1.0),
) -> Record:
    """Return a mapping as a dataclass; fields with a default may be left out.

    Args:
        kind: the dataclass. Its annotations may name dataclasses, enums, literals, unions, and tuples and mappings of
            them; `Annotated` adds a check.
        table: as JSON or TOML has it.
        path: where it stands.
        field_of: which field a key fills, and the factor of its numbers; a factor of 1 leaves a whole number whole.

    Raises:
        MisfitError: says what does not fit, and where.
    """
    found: Record = _Reader(field_of).record(kind, table, path)
    return found


_TAKEN: Mapping[Any, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    float: (int, float),
    str: (str,),
}
"""What a file may hold for a type."""


class _Reader:
    """Reads what has keys of one kind."""

    def __init__(self, field_of: Callable[[str], tuple[str, float]]) -> None:
        self.field_of = field_of

    def record(self, kind: Any, table: Mapping[str, Any], path: str) -> Any:
        known, values = _fields(kind), {}
        for key, value in table.items():
            name, factor = self.field_of(key)
            if name not in known:
                nearest = did_you_mean(str(name), known) or f"known: {', '.join(known)}"
                raise MisfitError("unknown", path, key, nearest=nearest)
            if name in values:
                raise MisfitError("twice", _below(path, name))
            values[name] = self.value(known[name].type, value, factor, _below(path, key))
        for name, field in known.items():
            if name not in values and field.default is field.default_factory is MISSING:
                wanted, check = _parted(field.type)
                raise MisfitError("missing", _below(path, name), kind=wanted, check=check)
        return kind(**values)

    def value(self, annotation: Any, value: Any, factor: float, path: str) -> Any:
        """Return a value as its annotation has it; a factor goes down to the numbers."""
        kind, check = _parted(annotation)
        if check is None:
            return self._of_kind(kind, value, factor, path)
        try:
            found = self._of_kind(kind, value, factor, path)
        except MisfitError as error:
            if error.path == path:
                error.check = check
            raise
        if not check.holds(found):
            raise MisfitError("check", path, value, kind=kind, check=check)
        return found

    def _of_kind(self, kind: Any, value: Any, factor: float, path: str) -> Any:
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in {Union, UnionType}:  # the first where an option is Annotated
            return self._of_one(arguments, value, factor, path)
        if is_dataclass(kind) and isinstance(value, Mapping):
            return self.record(kind, value, path)
        if origin is Mapping and isinstance(value, Mapping):
            of_key, of_value = arguments
            return {
                self._key(of_key, key, path): self.value(of_value, entry, factor, _below(path, key))
                for key, entry in value.items()
            }
        if origin is tuple and isinstance(value, list):
            kinds = arguments[:1] * len(value) if Ellipsis in arguments else arguments
            if len(kinds) == len(value):
                pairs = enumerate(zip(kinds, value, strict=True))
                return tuple(self.value(k, v, factor, f"{path}[{i}]") for i, (k, v) in pairs)
        return value if kind is Any else _scalar(kind, value, factor, path)

    def _of_one(self, options: tuple[Any, ...], value: Any, factor: float, path: str) -> Any:
        """Return a value as the first of several annotations that takes it; the last says what does not fit."""
        if value is None and NoneType in options:
            return None
        *others, last = (option for option in options if option is not NoneType)
        for option in others:
            with suppress(MisfitError):
                return self.value(option, value, factor, path)
        return self.value(last, value, factor, path)

    def _key(self, annotation: Any, key: str, path: str) -> Any:
        """Return a key of a mapping as its annotation has it; files have texts alone."""
        if annotation is not int:
            return self.value(annotation, key, 1, _below(path, key))
        if not key.isdecimal():
            raise MisfitError("unknown", path, key)
        return int(key)


@cache
def _fields(kind: Any) -> Mapping[str, Field[Any]]:
    return {field.name: field for field in fields(kind)}


def _parted(annotation: Any) -> tuple[Any, Any]:
    is_checked = get_origin(annotation) is Annotated
    return get_args(annotation) if is_checked else (annotation, None)


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _scalar(kind: Any, value: Any, factor: float, path: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, Enum):
        if str(value).upper() in kind.__members__:
            return kind[str(value).upper()]
    elif get_origin(kind) is Literal:
        if value in get_args(kind):
            return value
    elif type(value) in _TAKEN.get(kind, ()) and value == value:  # noqa: PLR0124 - NaN is no number
        with suppress(OverflowError):  # no float holds it
            return value * factor if kind is float or (kind is int and factor != 1) else value
    raise MisfitError("type", path, value, kind=kind)
