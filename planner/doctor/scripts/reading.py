"""A training script -> its syntax tree with what the rules ask of it; it is read, never run."""

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from planner.core.errors import InvalidInputError
from planner.core.files import looks_binary
from planner.core.hostile_text import check_python

MOST_BYTES = 2**20
_A_SCRIPT = "the script as it is run; a log is read by planner doctor --error FILE"
_PREPARE, _BACKWARD = "prepare", "backward"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_DOES = (ast.Import, ast.ImportFrom, ast.Call, *_FUNCTIONS)
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Loop = ast.For | ast.AsyncFor | ast.While


def read_script(content: bytes, name: str) -> "Script":
    """Return a script's tree.

    Raises:
        InvalidInputError: it is no Python of this interpreter, no script, or too large or too deeply nested to read.
    """
    if len(content) > MOST_BYTES:
        raise InvalidInputError(
            f"{name} has {len(content):,} bytes",
            hint=f"a script is read up to {MOST_BYTES:,}; is it a log? planner doctor --error {name}",
        )
    if looks_binary(content):
        raise InvalidInputError(f"{name} is binary, no script", hint=_A_SCRIPT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_python(content.decode("latin-1"))
            tree = ast.parse(content)
            script = Script(tree)
    except SyntaxError as error:
        line = f" (line {error.lineno})" if error.lineno else ""
        raise InvalidInputError(
            f"{name} is no Python{line}: {error.msg}",
            hint=_A_SCRIPT,
        ) from None
    except ValueError as error:
        raise InvalidInputError(f"{name} is no Python: {error}") from None
    except (RecursionError, MemoryError):
        raise InvalidInputError(f"{name} is nested too deeply to read") from None
    if not any(isinstance(node, _DOES) for node in script.nodes):
        raise InvalidInputError(
            f"{name} is no script: it imports, defines and calls nothing",
            hint="a configuration is read by planner check FILE",
        )
    return script


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


@dataclass(frozen=True, slots=True)
class Prepared:
    """One object that went through accelerator.prepare: what it was called, and what the result is."""

    original: str
    result: str
    """"" where the result was thrown away."""
    call: ast.Call
    scope: Scope


class Script:
    """A syntax tree, and what is looked for in it."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.nodes = tuple(ast.walk(tree))
        self.parents: Mapping[ast.AST, ast.AST] = {
            child: node for node in self.nodes for child in ast.iter_child_nodes(node)
        }

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

    @property
    def has_accelerator(self) -> bool:
        """Return whether Hugging Face's Accelerator is made."""
        return bool(self.called("Accelerator"))

    @property
    def has_ddp(self) -> bool:
        """Return whether the script wraps its model in DistributedDataParallel."""
        return bool(self.called("DistributedDataParallel"))

    @property
    def is_distributed(self) -> bool:
        """Return whether the script is written for a process per GPU."""
        return (
            self.has_accelerator
            or self.has_ddp
            or bool(self.called("init_process_group", "init_distributed"))
            or self.mentions("LOCAL_RANK")
        )

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

    @cached_property
    def backwards(self) -> tuple[Called, ...]:
        """Return the calls of backward."""
        return self.called(_BACKWARD)

    @cached_property
    def training_loops(self) -> tuple[Loop, ...]:
        """Return the innermost loops in which backward is called."""
        loops = (self.loop(call.node) for call in self.backwards)
        return tuple(dict.fromkeys(loop for loop in loops if loop is not None))

    @cached_property
    def accelerators(self) -> frozenset[str]:
        """Return the names that an Accelerator has."""
        return frozenset(
            self.dotted(target)
            for call in self.called("Accelerator")
            for target in self._targets(call.node)
        )

    def _targets(self, call: ast.Call) -> list[ast.expr]:
        parent = self.parents.get(call)
        if isinstance(parent, ast.Assign):
            return parent.targets
        return [parent.target] if isinstance(parent, ast.AnnAssign) else []

    @cached_property
    def prepared(self) -> tuple[Prepared, ...]:
        """Return every object that accelerator.prepare got by name, with what its result is called."""
        return tuple(
            each
            for call in self.called(_PREPARE)
            if call.owner in self.accelerators
            for each in self._pairs(call.node)
        )

    def _pairs(self, call: ast.Call) -> Iterator[Prepared]:
        scope, originals = self.scope(call), [self.dotted(argument) for argument in call.args]
        if isinstance(self.parents.get(call), ast.Expr):
            results = [""] * len(originals)
        else:
            targets = self._targets(call)
            if len(targets) != 1:
                return
            target = targets[0]
            elements = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            results = [self.dotted(element) for element in elements]
        if len(results) == len(originals):
            for original, result in zip(originals, results, strict=True):
                if original:
                    yield Prepared(original, result, call, scope)

    def assigned(self, name: str, before: ast.AST) -> ast.expr | None:
        """Return what was last assigned to a name above a node in its function or the module."""
        scopes, line = (self.scope(before), self.tree), getattr(before, "lineno", 0)
        above = [
            node
            for node in self._assignments.get(name, ())
            if node.lineno < line and self.scope(node) in scopes
        ]
        return max(above, key=lambda node: node.lineno).value if above else None

    @cached_property
    def _assignments(self) -> Mapping[str, list[ast.Assign]]:
        found: dict[str, list[ast.Assign]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    found.setdefault(self.dotted(target), []).append(node)
        return found
