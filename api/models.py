"""The answers' shapes -> pydantic models, by which REST describes them; nothing is written twice."""

from dataclasses import MISSING, fields, is_dataclass
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ForwardRef,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from pydantic import BaseModel, ConfigDict, Field, create_model

from planner.core.errors import Problem
from planner.domain.cluster import Instance
from planner.domain.strategy import Choice, Layout
from planner.machine import document
from planner.request.sections import RecomputeModule

_NULL_WHERE_EMPTY = {"intra_node", "topology", "wiring", "notes"}
"""Of an instance: what may be empty and is known all the same."""
_ONLY_IN_THE_CONTRACT: dict[str, Any] = {
    "expert_tensor_parallel_size": int | None,
    "recompute_layers": int | None,
    "recompute_modules": list[RecomputeModule],
    "pipeline_layout": list[int] | None,
}
"""Fields of a layout that the contract writes otherwise than the record has them, or that are a request's."""
_LEFT_OUT: dict[str, Any] = {"json_schema_extra": lambda schema: schema.pop("default")}
"""Of a field that is not there where it says nothing: it is never null."""


_NAMES = {Problem: "ErrorItem"}
"""Of records that are called otherwise here: a problem is all of a failed request."""
SHAPES: dict[str, Any] = {}
"""What each model is of, by its name."""


class Closed(BaseModel):
    """Has the fields that it names, and no others."""

    model_config = ConfigDict(extra="forbid")


def answer_model(shape: Any) -> type[BaseModel]:
    """Return the model of an answer: of a TypedDict, or of a dataclass whose fields it has."""
    make = _of_record if is_dataclass(shape) else _of_answer
    return make(shape)


def list_model(name: str, key: str, item: Any) -> type[BaseModel]:
    """Return the model of an object that holds one list."""
    said = f"The {key.replace('gpus', 'GPUs')} that the planner knows."
    return _created(name, {key: (_wire(list.__class_getitem__(item)), ...)}, said)


@cache
def instance_model() -> type[BaseModel]:
    """Return the model of a cloud instance: what is not known of it is null."""
    hints = get_type_hints(Instance)
    described = {
        field.name: hints[field.name]
        if field.default is MISSING or field.name in _NULL_WHERE_EMPTY
        else hints[field.name] | None
        for field in fields(Instance)
    }
    return _model("Instance", Instance, described, set(described))


@cache
def _of_answer(shape: Any) -> type[BaseModel]:
    hints = get_type_hints(shape, include_extras=True)
    return _model(shape.__name__, shape, hints, shape.__required_keys__ & set(hints))


@cache
def _of_record(record: Any) -> type[BaseModel]:
    hints, meant = get_type_hints(record), _meant(record)
    known = {
        field.name: meant.get(hints[field.name], hints[field.name]) for field in fields(record)
    }
    if record is Layout:
        known |= _ONLY_IN_THE_CONTRACT
    if record.__module__ == document.__name__:
        return _of_document(record, known)
    return _model(_NAMES.get(record, record.__name__), record, known, set(known))


def _meant(record: Any) -> dict[Any, Any]:
    return {
        variable: kind
        for base in getattr(record, "__orig_bases__", ())
        for variable, kind in zip(get_origin(base).__parameters__, get_args(base), strict=True)
    }


def _of_document(record: Any, hints: dict[str, Any]) -> type[BaseModel]:
    """Return the model of a part of a machine: what was not measured is not there; GPUs have curves of the same name."""
    required = {
        field.name for field in fields(record) if field.default is field.default_factory is MISSING
    }
    measured = {
        name: reduce(or_, [each for each in get_args(hint) if each is not NoneType])
        if NoneType in get_args(hint)
        else hint
        for name, hint in hints.items()
    }
    return _model(f"{record.__name__}OfMachine", record, measured, required)


def _model(name: str, shape: Any, hints: dict[str, Any], required: set[str]) -> type[BaseModel]:
    SHAPES[name] = shape
    described = {
        field: (_wire(hint, within=name), ... if field in required else Field(None, **_LEFT_OUT))
        for field, hint in hints.items()
    }
    return _created(name, described, (shape.__doc__ or "").strip())


def _created(name: str, described: dict[str, Any], said: str = "") -> type[BaseModel]:
    return create_model(name, __base__=Closed, __doc__=said or None, **described)


def _wire(hint: Any, within: str = "") -> Any:
    if isinstance(hint, type):
        return _wire_class(hint, within)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return answer_model(hint.__metadata__[0])
    if origin is NotRequired:
        return _wire(arguments[0], within)
    if origin is Literal or origin is None:
        return hint
    inner = tuple(each if each is ... else _wire(each, within) for each in arguments)
    return reduce(or_, inner) if origin in {Union, UnionType} else origin[inner]


def _wire_class(kind: type, within: str) -> Any:
    if issubclass(kind, Choice):
        return Literal[kind.names()]
    if is_typeddict(kind):
        return ForwardRef(within) if kind.__name__ == within else answer_model(kind)
    return answer_model(kind) if is_dataclass(kind) else kind
