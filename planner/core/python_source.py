"""Python as it is written -> its syntax tree, and what is asked of one: calls by name, scopes, what a name stands for."""

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from planner.core.hostile_text import check_python

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Loop = ast.For | ast.AsyncFor | ast.While


def parse_python(source: str | bytes) -> ast.Module:
    """Return the tree of a script; nothing in it is run.

    Raises:
        SyntaxError: it is no Python of this interpreter.
        ValueError: it is more than its parser takes.
        RecursionError: it is nested too deeply.
        MemoryError: likewise.
    """
    check_python(source if isinstance(source, str) else source.decode("latin-1"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its style: nobody asked
        return ast.parse(source)


def constant(node: ast.AST | None) -> object:
    """Return the value of a constant that is written out; None of anything else."""
    return node.value if isinstance(node, ast.Constant) else None


@dataclass(frozen=True, slots=True)
class Called:
    """One call of a script, and its name with imports resolved: `torch.nn.DataParallel`, `loss.backward`."""

    name: str
    node: ast.Call

    @property
    def last(self) -> str:
        """Return the part after the last dot."""
        return self.name.rpartition(".")[2]

    @property
    def owner(self) -> str:
        """Return the part before the last dot."""
        return self.name.rpartition(".")[0]

    def keyword(self, name: str) -> ast.expr | None:
        """Return the value of a keyword, None where it is not given."""
        return next((k.value for k in self.node.keywords if k.arg == name), None)

    def said(self, name: str) -> object:
        """Return the constant that a keyword is given; None where it is given none."""
        return constant(self.keyword(name))


class PythonSource:
    """A syntax tree, and what is looked for in it."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.nodes = tuple(ast.walk(tree))

    @cached_property
    def parents(self) -> Mapping[ast.AST, ast.AST]:
        """Return what each node stands in."""
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    @cached_property
    def _imported(self) -> dict[str, str]:
        names: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                names |= {a.asname: a.name for a in node.names if a.asname}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        return names

    def dotted(self, node: ast.AST | None) -> str:
        """Return `a.b.c` of names and attributes with imports resolved; "" of anything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ".".join(["", *reversed(parts)]) if parts else ""
        return ".".join([self._imported.get(node.id, node.id), *reversed(parts)])

    @cached_property
    def calls(self) -> tuple[Called, ...]:
        """Return every call, top to bottom."""
        found = [Called(self.dotted(n.func), n) for n in self.nodes if isinstance(n, ast.Call)]
        return tuple(sorted(found, key=lambda call: (call.node.lineno, call.node.col_offset)))

    def called(self, *lasts: str) -> tuple[Called, ...]:
        """Return the calls of functions or methods of these names."""
        return tuple(call for call in self.calls if call.last in lasts)

    def mentions(self, *names: str) -> bool:
        """Return whether any name, attribute, keyword or string of the script is one of these."""
        return not self._words.isdisjoint(names)

    @cached_property
    def _words(self) -> frozenset[str]:
        words: set[str] = set(self._imported) | set(self._imported.values())
        words |= {value.rpartition(".")[2] for value in self._imported.values()}
        for node in self.nodes:
            if isinstance(node, ast.Name):
                words.add(node.id)
            elif isinstance(node, ast.Attribute):
                words.add(node.attr)
            elif isinstance(node, ast.keyword) and node.arg:
                words.add(node.arg)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.add(node.value)
        return frozenset(words)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what a node stands in, from the inside."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def scope(self, node: ast.AST) -> Scope:
        """Return the function that a node stands in, or the module."""
        for parent in self.above(node):
            if isinstance(parent, _FUNCTIONS):
                return parent
        return self.tree

    def loop(self, node: ast.AST) -> Loop | None:
        """Return the innermost loop of the same function that a node stands in."""
        for parent in self.above(node):
            if isinstance(parent, (ast.For, ast.AsyncFor, ast.While)):
                return parent
            if isinstance(parent, _FUNCTIONS):
                return None
        return None

    def assigned(self, name: str, before: ast.AST) -> ast.expr | None:
        """Return what was last assigned to a name above a node in its function or the module."""
        scopes, line = (self.scope(before), self.tree), getattr(before, "lineno", 0)
        above = [
            node
            for node in self._assignments.get(name, ())
            if node.lineno < line and self.scope(node) in scopes
        ]
        return max(above, key=lambda node: node.lineno).value if above else None

    def gives(self, call: Called, name: str) -> bool:
        """Return whether a call is given a keyword, by itself or in a dict that it unpacks."""
        unpacked = (each.value for each in call.node.keywords if each.arg is None)
        dicts = (self.assigned(self.dotted(each), call.node) or each for each in unpacked)
        return call.keyword(name) is not None or any(
            isinstance(each, ast.Dict) and name in map(constant, each.keys) for each in dicts
        )

    @cached_property
    def _assignments(self) -> Mapping[str, list[ast.Assign]]:
        found: dict[str, list[ast.Assign]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    found.setdefault(self.dotted(target), []).append(node)
        return found
