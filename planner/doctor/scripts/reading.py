"""A training script -> its syntax tree with what the rules ask of it; it is read, never run."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from planner.core.errors import InvalidInputError
from planner.core.files import looks_binary
from planner.core.python_source import Called, Loop, PythonSource, Scope, parse_python

MOST_BYTES = 2**20
_A_SCRIPT = "the script as it is run; a log is read by planner doctor --error FILE"
_PREPARE, _BACKWARD = "prepare", "backward"
_DOES = (
    *(ast.Import, ast.ImportFrom, ast.Call),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda),
)


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
        script = Script(parse_python(content))
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
class Spot:
    """One fault: the node, what is wrong there, and other lines that belong to it."""

    node: ast.expr | ast.stmt
    message: str
    also: tuple[int, ...] = ()
    fix: str = ""
    """What to do in this script, where it is not what its rule says."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """One object that went through accelerator.prepare: what it was called, and what the result is."""

    original: str
    result: str
    """"" where the result was thrown away."""
    call: ast.Call
    scope: Scope


class Script(PythonSource):
    """A training script: its devices, its loops, and what Accelerate prepares."""

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
