"""Names of a script whose value is a process's own: its rank, or whether it is the first."""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from planner.core.python_source import constant
from planner.doctor.scripts.reading import Script

_OF_RANK = re.compile(
    r"rank|gpu_id|is_main_process|is_local_main_process|is_world_process_zero|is_master|process_index|is_main"
    r"|on_main_process"
)
_VARIABLES = frozenset(
    {"RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID", "OMPI_COMM_WORLD_RANK"}
)
_SAME_VALUE = frozenset({"int", "bool", "str"})
_READS = frozenset({"get", "getenv"})
_MOST_STEPS = 4
"""Assignments that are followed from name to name."""
_DIVIDED = re.compile(
    r"shard|iterable|stream|distributed|world|num_replicas|num_processes", re.IGNORECASE
)
_MOVES = frozenset({"to", "cuda", "device", "set_device", "manual_seed"})
"""Calls that take a rank and divide no data."""


@lru_cache(maxsize=1)
def names_of_ranks(script: Script) -> frozenset[str]:
    """Return the names that hold or return a rank or a test of it, whatever they are called."""
    pairs = [
        (name, value)
        for name, value in _assigned(script)
        if isinstance(value, ast.expr) and name and not name.startswith(".")
    ]
    known: frozenset[str] = frozenset()
    for _ in range(_MOST_STEPS):
        known |= {name for name, value in pairs if _is_rank(script, value, known)}
    return known


def _assigned(script: Script) -> Iterator[tuple[str, ast.expr | None]]:
    for node in script.nodes:
        if isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            yield script.dotted(node.target), node.value
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _unpacked(script, target, node.value)
        elif isinstance(node, ast.Return):
            yield getattr(script.scope(node), "name", ""), node.value


def _unpacked(
    script: Script, target: ast.expr, value: ast.expr
) -> Iterator[tuple[str, ast.expr | None]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for name, each in zip(target.elts, value.elts, strict=False):
            yield script.dotted(name), each
    else:
        yield script.dotted(target), value


def _is_rank(script: Script, value: ast.expr, known: frozenset[str]) -> bool:
    if isinstance(value, (ast.Name, ast.Attribute)):
        name = script.dotted(value)
        return name in known or _OF_RANK.search(name.rpartition(".")[2]) is not None
    if isinstance(value, ast.Subscript):
        return _is_variable(value.slice)
    if isinstance(value, ast.Call):
        name = script.dotted(value.func)
        last = name.rpartition(".")[2]
        if last in _SAME_VALUE:
            return any(_is_rank(script, each, known) for each in value.args[:1])
        is_read = last in _READS and bool(value.args) and _is_variable(value.args[0])
        return is_read or name in known or _OF_RANK.search(last) is not None
    return any(_is_rank(script, each, known) for each in _operands(value))


def _operands(value: ast.expr) -> list[ast.expr]:
    if isinstance(value, ast.Compare):
        return [value.left, *value.comparators]
    if isinstance(value, ast.BoolOp):
        return value.values
    if isinstance(value, ast.BinOp):
        return [value.left, value.right]
    if isinstance(value, ast.UnaryOp):
        return [value.operand]
    return [value.body, value.orelse] if isinstance(value, ast.IfExp) else []


def _is_variable(node: ast.expr) -> bool:
    return constant(node) in _VARIABLES


def asks_for_rank(script: Script, test: ast.expr) -> bool:
    """Return whether an expression asks which process this is."""
    known = names_of_ranks(script)
    return any(
        _OF_RANK.search(_last(node)) or script.dotted(node) in known or _is_variable(node)
        for node in ast.walk(test)
        if isinstance(node, (ast.Name, ast.Attribute, ast.Constant))
    )


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def is_for_one_rank(decorator: ast.expr) -> bool:
    """Return whether a decorator lets some processes alone through."""
    return _OF_RANK.search(ast.dump(decorator)) is not None


def is_divided(script: Script, data: ast.expr) -> bool:
    """Return whether data is made with a rank or a number of processes, or may be a part or a stream."""
    known, seen = names_of_ranks(script), set[str]()
    wanted: list[ast.AST] = [data]
    while wanted:
        node = wanted.pop()
        if isinstance(node, (ast.Name, ast.Attribute)):
            name = script.dotted(node)
            if name in known or _DIVIDED.search(name) or _OF_RANK.search(name):
                return True
            value = None if name in seen else script.assigned(name, data)
            seen.add(name)
            wanted += [value] if value is not None else []
        elif isinstance(node, ast.keyword) and _DIVIDED.search(node.arg or ""):
            return True
        is_move = isinstance(node, ast.Call) and _last(node.func) in _MOVES
        if not is_move and not isinstance(node, ast.JoinedStr):
            wanted += ast.iter_child_nodes(node)
    return False
