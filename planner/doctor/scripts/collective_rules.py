"""What all processes must do together, and some do alone or never."""

import ast
import re
from collections.abc import Iterator

from planner.core.python_source import Called, Loop, constant
from planner.doctor.scripts.ranks import asks_for_rank
from planner.doctor.scripts.reading import Script, Spot

_COLLECTIVES = frozenset(
    {
        "barrier",
        "all_reduce",
        "all_gather",
        "all_gather_object",
        "all_gather_into_tensor",
        "all_to_all",
        "all_to_all_single",
        "broadcast",
        "broadcast_object_list",
        "reduce_scatter",
        "reduce_scatter_tensor",
    }
)
_OF_ACCELERATOR = frozenset({"wait_for_everyone", "gather", "gather_for_metrics", "reduce"})
_OF_ENGINE = frozenset({"save_checkpoint", "load_checkpoint", "save_16bit_model"})
"""Of DeepSpeed's engine: each rank writes or gathers its part."""
_GROUPS = ("group", "new_group", "process_group")
_OPTIMIZER = re.compile(r"opt", re.IGNORECASE)
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_KEEPS = frozenset({"step", "unscale_", "update", "prepare"})
"""Calls that take an optimizer and leave its gradients."""


def collective_of_some_ranks(script: Script) -> Iterator[Spot]:
    """A collective stands under `if rank == 0:`, and no other rank comes to one."""
    if script.mentions(*_GROUPS):
        return
    found = [
        (call, branch)
        for call in script.calls
        if _is_collective(script, call) and (branch := _branch(script, call)) is not None
    ]
    # Ranks may meet in another branch: in the `else`, or where the first is done and lets the others go on.
    if len({each for _, (*_, each) in found}) != 1:
        return
    for call, (test, is_left, _) in found:
        if not is_left and _is_of_one_rank(script, test):
            yield Spot(
                call.node,
                f"{call.last} under `if {ast.unparse(test)[:60]}:` waits for ranks that never call it",
            )


def _is_collective(script: Script, call: Called) -> bool:
    if call.owner in script.accelerators:
        return call.last in _OF_ACCELERATOR
    if call.last in _OF_ENGINE:
        return call.owner in _engines(script)
    return call.last in _COLLECTIVES and call.owner == "torch.distributed"


def _engines(script: Script) -> set[str]:
    """Return the names of DeepSpeed's engines: the first of what deepspeed.initialize returns."""
    names = set()
    for call in script.called("initialize"):
        parent = script.parents.get(call.node)
        if call.owner == "deepspeed" and isinstance(parent, ast.Assign):
            first = parent.targets[0]
            names.add(script.dotted(first.elts[0] if isinstance(first, ast.Tuple) else first))
    return names - {""}


def _branch(script: Script, call: Called) -> tuple[ast.expr, bool, str] | None:
    inner: ast.AST = call.node
    for above in script.above(call.node):
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
        if isinstance(above, ast.If) and asks_for_rank(script, above.test):
            branch = above.body if inner in above.body else above.orelse
            is_left = any(isinstance(node, _LEAVES) for each in branch for node in ast.walk(each))
            return above.test, is_left, f"{branch is above.body} {ast.unparse(above.test)}"
        inner = above
    return None


def _is_of_one_rank(script: Script, test: ast.expr) -> bool:
    """Return whether a test tells rank 0 from the others; rank -1 is a run of one process."""
    if isinstance(test, ast.BoolOp):
        return isinstance(test.op, ast.And) and any(
            _is_of_one_rank(script, each) for each in test.values
        )
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return asks_for_rank(script, test)
    if isinstance(test, ast.Compare):
        is_rank = type(constant(test.comparators[0])) is int
        is_equal = isinstance(test.ops[0], (ast.Eq, ast.NotEq))
        return is_rank and is_equal and asks_for_rank(script, test.left)
    name = script.dotted(test.func if isinstance(test, ast.Call) else test).rpartition(".")[2]
    return "main" in name or "master" in name or "zero" in name


def gradients_are_never_cleared(script: Script) -> Iterator[Spot]:
    """The optimizer steps in a loop, and nothing ever clears the gradients."""
    if script.mentions("zero_grad", "grad", "deepspeed"):
        return
    for loop in script.training_loops:
        step = _step_of_optimizer(script, loop)
        if step is not None:
            yield Spot(
                step.node, f"{step.name}() and no zero_grad: gradients add up over all steps"
            )


def _step_of_optimizer(script: Script, loop: Loop) -> Called | None:
    """Return where a loop's optimizer steps; None where another function has the optimizer."""
    inside = [call for call in script.calls if script.loop(call.node) is loop]
    if any(call.last not in _KEEPS and _takes_optimizer(script, call) for call in inside):
        return None
    steps = (
        call
        for call in inside
        if call.last == "step" and (_OPTIMIZER.search(call.owner) or _takes_optimizer(script, call))
    )
    return next(steps, None)


def _takes_optimizer(script: Script, call: Called) -> bool:
    return any(_OPTIMIZER.search(script.dotted(each)) for each in call.node.args)
