"""Functions that users read of: a rule's name is its function's, and its docstring the documentation."""

import inspect
from collections.abc import Callable
from typing import Any


def shown_name(function: Callable[..., Any]) -> str:
    """Return a function's name in kebab case."""
    return getattr(function, "__name__", "").replace("_", "-")


def documentation(function: Callable[..., Any]) -> str:
    """Return a function's docstring: a statement, then Why, Instead and Source."""
    return inspect.getdoc(function) or ""
