"""What each field of the description is: of docstrings where it is declared, and of data beside them."""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, get_origin

from pydantic import BaseModel

from api.models import SHAPES
from planner.catalog.fields import words
from planner.catalog.records import read

_SECTIONS = ("", "strategy.", "recipe.", "recipe.lora.", "cluster.")
"""Of a request, whose fields answers repeat under the same names."""


def add_words(schemas: Mapping[str, dict[str, Any]]) -> None:
    """Describe each field that says nothing of itself yet."""
    classes = {each.__name__: each for each in _below(BaseModel)}
    for name, schema in schemas.items():
        properties = schema.get("properties", {})
        declared = _declared(SHAPES.get(name) or classes[name]) if properties else {}
        for field, described in properties.items():
            if "description" not in described:
                held = _of_what_it_holds(described, schemas)
                described["description"] = declared.get(field) or held or _by_name(field)


def _below(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


def _declared(kind: Any) -> Mapping[str, str]:
    """Return the docstrings below the fields of a class, and of those that it extends."""
    said: dict[str, str] = {}
    for each in vars(kind).get("__orig_bases__", kind.__bases__):
        base = get_origin(each) or each
        if base.__module__.partition(".")[0] in {"api", "planner"}:
            said |= _declared(SHAPES.get(base.__name__, base))
    return {**said, **_in_module(kind.__module__).get(kind.__name__, {})}


@cache
def _in_module(name: str) -> Mapping[str, Mapping[str, str]]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError):  # installed as bytecode alone, or made as it runs
        return {}
    return {
        each.name: dict(_docstrings(each.body))
        for each in tree.body
        if isinstance(each, ast.ClassDef)
    }


def _docstrings(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, after in pairwise(body):
        match field, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                value=ast.Constant(value=str(said))
            ):
                yield name, inspect.cleandoc(said)


def _by_name(field: str) -> str:
    asked = next((words()[each + field] for each in _SECTIONS if each + field in words()), None)
    known: str = read("request", "answers").get(field, "")
    return known or (asked.about or asked.help if asked else "")


def _of_what_it_holds(described: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """Return what the object is that a field holds, or each of many."""
    for reference in _references(described):
        said: str = schemas[reference.rpartition("/")[2]].get("description", "")
        return said.partition("\n\n")[0]
    return ""


def _references(described: Any) -> Iterator[str]:
    for key, value in described.items():
        if key == "$ref":
            yield value
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, dict):
                yield from _references(each)
