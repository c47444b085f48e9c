"""Small faults put into the estimates one at a time: do the folder's own tests find each?

Every mutant is in the memory of a fork alone: no file is written. Files of tests that found faults before come first.
"""

import argparse
import ast
import copy
import os
import random
import resource
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("memory", "step_time", "search", "collectives")
SAMPLE, MUST_DIE, SECONDS, MEMORY_BYTES = 200, 0.9, 300, 8 * 2**30
PAIRS = """Add Sub, Mult Div, BitAnd BitOr, And Or, Lt LtE, Gt GtE, Eq NotEq, In NotIn, Is IsNot, min max,
minimum maximum, argmin argmax, any all, logical_and logical_or, floor ceil"""
OTHER = {a: b for pair in PAIRS.split(",") for a, b in (pair.split(), pair.split()[::-1])}
OTHER |= {"FloorDiv": "Div", "Mod": "FloorDiv", "Pow": "Mult"}
OWN = (f"{ROOT}/planner/", f"{ROOT}/tests/")
NOT_COMPUTED = ("annotation", "returns", "type_params", "decorator_list")


class Mutant(NamedTuple):
    folder: str
    path: Path
    tree: ast.Module
    old: ast.AST
    new: ast.AST

    def put_in(self) -> None:
        swap: Any = ast.NodeTransformer()
        swap.visit = lambda node: self.new if node is self.old else swap.generic_visit(node)
        tree, path = ast.fix_missing_locations(swap.visit(self.tree)), str(self.path)
        faulty, loaders = compile(tree, path, "exec"), cast("Any", SourceFileLoader)
        usual = loaders.get_code
        loaders.get_code = lambda it, name: faulty if it.path == path else usual(it, name)


def mutants(folder: str) -> Iterator[Mutant]:
    for path in sorted((ROOT / "planner" / folder).rglob("*.py")):
        tree = ast.parse(path.read_text())
        for old in _computed(tree):
            for new in _faults(old):
                yield Mutant(folder, path, tree, old, ast.copy_location(new, old))


def _computed(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for field, value in ast.iter_fields(node):
        if field not in NOT_COMPUTED and not isinstance(node, ast.JoinedStr):
            for child in value if isinstance(value, list) else [value]:
                yield from _computed(child) if isinstance(child, ast.AST) else ()


def _faults(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.BinOp(left=first) | ast.BoolOp(values=[first, *_]):
            yield _with(node, op=_other(node.op))
            yield first
        case ast.Compare(ops=[op]):
            yield _with(node, ops=[_other(op)])
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub(), operand=operand):
            yield operand
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in OTHER:
            yield _with(node, id=OTHER[name], attr=OTHER[name])


def _other(operator: ast.AST) -> Any:
    return getattr(ast, OTHER[type(operator).__name__])()


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    changed = copy.copy(node)
    vars(changed).update(fields)
    return changed


def killer(folder: str, mutant: Mutant | None, kills: Counter[str]) -> str:
    """Return the file of the test that fails with a mutant in, or how else it ends; "" where it survives."""
    likely = [file for file, _ in kills.most_common(3) if file.startswith("tests/")]
    with tempfile.NamedTemporaryFile() as said:
        if not (child := os.fork()):
            signal.alarm(SECONDS)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
            for name, module in [*sys.modules.items()]:
                if str(getattr(module, "__file__", "")).startswith(OWN) and name != "__main__":
                    del sys.modules[name]
            if mutant:
                mutant.put_in()
            Path(said.name).write_text((likely and _run(likely)) or _run([f"tests/{folder}"]))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        return Path(said.name).read_text() if status == 0 else f"killed by {status}"


class _Failed(list[str]):
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self += [report.nodeid.split("::")[0]] if report.failed else []


def _run(paths: list[str]) -> str:
    failed, options = _Failed(), ("-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider")
    ended = pytest.main([*options, *paths], plugins=[failed])
    return "".join(failed[:1]) or ("" if ended == 0 else f"ended with {ended}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    os.chdir(ROOT)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = tempfile.mkdtemp()
    every = [mutant for folder in FOLDERS for mutant in mutants(folder)]
    sample = random.Random(asked.seed).sample(every, SAMPLE)
    pytest.main(["--collect-only", "-qqq", *(f"tests/{each}" for each in FOLDERS)])
    kills = {folder: Counter[str]() for folder in FOLDERS}
    for folder in FOLDERS:
        if failed := killer(folder, None, Counter()):
            sys.exit(f"tests/{folder} are not green without a fault: {failed}")
    for number, mutant in enumerate(sample, 1):
        found = killer(mutant.folder, mutant, kills[mutant.folder])
        kills[mutant.folder][found] += 1
        if not found:
            place = f"{mutant.path.relative_to(ROOT)}:{getattr(mutant.old, 'lineno', 0)}"
            old, new = ast.unparse(mutant.old), ast.unparse(mutant.new)
            print(f"{number}: {place}: {old}  ->  {new}", flush=True)
    dead = SAMPLE - sum(found[""] for found in kills.values())
    print(f"{dead} of {SAMPLE} mutants die, drawn from {len(every)} with seed {asked.seed}")
    return int(dead < MUST_DIE * SAMPLE)


if __name__ == "__main__":
    sys.exit(main())
