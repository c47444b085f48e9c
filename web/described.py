"""The OpenAPI description -> the lines of its page: routes by their subject, and what each field may hold."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from markupsafe import Markup, escape

_LINK = Markup('<a href="#{name}">{name}</a>')
_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
}


class Field(NamedTuple):
    """A field of a body or an answer."""

    name: str
    kind: Markup
    """What it may hold."""
    description: str


def subjects(said: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, str], list[tuple[str, Any]]]]:
    """Yield each tag with its routes: method and path, and the operation."""
    for tag in said["tags"]:
        yield (
            tag,
            [
                (f"{method.upper()} {path}", operation)
                for path, methods in said["paths"].items()
                for method, operation in methods.items()
                if tag["name"] in operation["tags"]
            ],
        )


def fields_of(schema: Mapping[str, Any], linked: Collection[str]) -> list[Field]:
    """Return the fields of a schema; `linked` are the schemas that the page shows."""
    properties, required = schema["properties"], schema.get("required", ())
    is_told = len(required) < len(properties)
    found = []
    for name, said in properties.items():
        kind = _kind(said, linked)
        if said.get("default") is not None:
            kind += escape(f", {json.dumps(said['default'])} where it is not said")
        elif is_told and name in required:
            kind += escape(", required")
        found.append(Field(name, kind, said["description"]))
    return found


def _whole(bound: float) -> float:
    return int(bound) if bound == int(bound) else bound


def _kind(said: Mapping[str, Any], linked: Collection[str]) -> Markup:
    """Return what a value may be, in words."""
    if "$ref" in said:
        name = said["$ref"].rpartition("/")[2]
        return _LINK.format(name=name) if name in linked else escape(name)
    if "anyOf" in said:
        return Markup(" or ").join(_kind(each, linked) for each in said["anyOf"])
    if "enum" in said or "const" in said:
        return escape(", ".join(json.dumps(each) for each in said.get("enum", [said.get("const")])))
    if said.get("type") == "array":
        return Markup("list of ") + _kind(said.get("items", {}), linked)
    if isinstance(values := said.get("additionalProperties"), dict):
        return Markup("object of ") + _kind(values, linked)
    bounds = [words.format(_whole(said[name])) for name, words in _BOUNDS.items() if name in said]
    return escape(" ".join([said.get("type", "anything"), " and ".join(bounds)]).strip())
