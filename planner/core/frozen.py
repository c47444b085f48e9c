"""Frozen dataclasses that are made quickly: a command makes 160 of them before it answers.

`dataclass(frozen=True, slots=True, kw_only=True)` compiles six methods for each class, which took a sixth of a
command's time on Python 3.11. Here a class has a constructor of its own, and shares the others.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

_Class = TypeVar("_Class")

_set: Callable[[object, str, object], None] = object.__setattr__


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(cls: type[_Class]) -> type[_Class]:
    """Return a class as a frozen dataclass with slots and keywords alone, as the library's would be."""
    cls.__doc__ = cls.__doc__ or cls.__name__  # without one, the library works a signature out
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(cls)
    compared = [each.name for each in fields(made) if each.compare]
    # Of one name, attrgetter would return the bare value.
    of_it = {
        **_SHARED,
        "__init__": _constructor(made),
        "_compared": staticmethod(attrgetter(*compared, *compared[:1]) if compared else _nothing),
    }
    for name, method in of_it.items():
        if cls.__dict__.get(name) is None:
            setattr(made, name, method)
    made_class: type[_Class] = made
    return made_class


def _nothing(_self: object) -> tuple[()]:
    return ()


def _constructor(cls: Any) -> Callable[..., None]:
    names: dict[str, Any] = {"_set": _set}
    given = [_parameter(each, names) for each in fields(cls)]
    lines = [f"_set(self, {each.name!r}, {_value(each)})" for each in fields(cls)]
    lines += ["self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    head = f"def __init__({', '.join(['self', *(['*'] if given else []), *given])}):"
    exec("\n ".join([head, *(lines or ["pass"])]), names)  # noqa: S102 - as the library makes it
    constructor: Callable[..., None] = names["__init__"]
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    return constructor


def _parameter(one: Field[Any], names: dict[str, Any]) -> str:
    if one.default is not MISSING:
        names[f"_default_{one.name}"] = one.default
        return f"{one.name}=_default_{one.name}"
    if one.default_factory is not MISSING:
        names[f"_make_{one.name}"] = one.default_factory
        return f"{one.name}=_set"  # which no caller gives
    return one.name


def _value(one: Field[Any]) -> str:
    if one.default_factory is MISSING:
        return one.name
    return f"_make_{one.name}() if {one.name} is _set else {one.name}"


def _refuse_to_set(_self: object, name: str, _value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _eq(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return self._compared(self) == self._compared(other)


def _hash(self: Any) -> int:
    return hash(self._compared(self))


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        _set(self, each.name, value)


_SHARED: dict[str, Callable[..., Any]] = {
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__getstate__": _state,
    "__setstate__": _restore,
}
