"""What goes wrong in scripts that use Accelerate: one function per fault."""

import ast
from collections.abc import Iterator

from planner.core.python_source import Loop
from planner.doctor.scripts.reading import Prepared, Script, Spot

_SCHEDULE_LENGTHS = ("num_training_steps", "T_max", "total_steps", "total_iters")
_GATE_NAMES = ("num_processes", "split_batches", "step_scheduler_with_optimizer")
_OF_OBJECT = "self."
"""What is prepared in one method and used in another."""
_STEPPED = ("step", "zero_grad")


def prepared_object_is_not_used(script: Script) -> Iterator[Spot]:
    """What accelerator.prepare returned is thrown away, and the original is used."""
    for each in script.prepared:
        if each.original == each.result:
            continue
        if not each.result and not _is_mentioned(script, each):
            continue
        if not each.result:
            yield Spot(
                each.call,
                f"the results of accelerator.prepare (line {each.call.lineno}) are thrown away;"
                f" {each.original} stays as it was",
            )
            return
        use = _use_of_original(script, each)
        if use is not None:
            node, how = use
            yield Spot(
                node,
                f"{each.original} is {how} (line {node.lineno}), but what accelerator.prepare returned"
                f" (line {each.call.lineno}) is {each.result}",
                (each.call.lineno,),
            )


def _is_mentioned(script: Script, each: Prepared) -> bool:
    return any(
        isinstance(node, (ast.Name, ast.Attribute))
        and node.lineno > (each.call.end_lineno or each.call.lineno)
        and script.dotted(node) == each.original
        for node in script.nodes
    )


def _use_of_original(script: Script, each: Prepared) -> tuple[Loop | ast.Call, str] | None:
    """Return where the unprepared object drives the training, below its preparation; None for nowhere."""
    for node in script.nodes:
        if getattr(node, "lineno", 0) <= each.call.lineno:
            continue
        if isinstance(node, (ast.For, ast.AsyncFor)) and _iterates(script, node, each.original):
            if _is_alive(script, each, node):
                return node, "iterated"
        elif isinstance(node, ast.Call) and _is_alive(script, each, node):
            name = script.dotted(node.func)
            if name == each.original:
                return node, "called"
            if name in {f"{each.original}.{method}" for method in _STEPPED}:
                return node, "stepped"
    return None


def _iterates(script: Script, loop: ast.For | ast.AsyncFor, name: str) -> bool:
    wanted = [loop.iter]
    while wanted:
        node = wanted.pop()
        if script.dotted(node) == name:
            return True
        if isinstance(node, ast.Call) and script.dotted(node.func) not in {"range", "len"}:
            wanted += node.args
    return False


def _is_alive(script: Script, each: Prepared, use: ast.AST) -> bool:
    """Return whether the original is what the name still stands for, where it is used."""
    is_of_object = each.original.startswith(_OF_OBJECT)
    if not is_of_object and each.scope not in _functions_around(script, use):
        return False
    value = script.assigned(each.original, use)
    line = getattr(value, "lineno", 0) if value is not None else 0
    return line <= each.call.lineno


def _functions_around(script: Script, node: ast.AST) -> list[ast.AST]:
    return [
        each
        for each in script.above(node)
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module))
    ]


def scheduler_ends_early(script: Script) -> Iterator[Spot]:
    """A prepared scheduler steps once per process in each step, and its length does not allow for it."""
    if script.mentions(*_GATE_NAMES):
        return
    loaders = {each.result: each for each in script.prepared if each.result}
    for scheduler in script.prepared:
        made = script.assigned(scheduler.original, scheduler.call)
        if not isinstance(made, ast.Call):
            continue
        for keyword in made.keywords:
            if keyword.arg in _SCHEDULE_LENGTHS:
                name = _counted_loader(script, keyword.value, made)
                loader = loaders.get(name)
                if loader is not None and loader.call.lineno < _counted_at(
                    script, keyword.value, made
                ):
                    yield Spot(
                        made,
                        f"the schedule is as long as the prepared {name} (line {loader.call.lineno}), and the"
                        " prepared scheduler steps once per process: on N GPUs it ends after 1/N of the training",
                        (loader.call.lineno,),
                    )
                elif name and _walks_all(script, name):
                    yield Spot(
                        scheduler.call,
                        f"the prepared {scheduler.original} steps once per process, but the loop walks all of the"
                        f" unprepared {name}: on N GPUs the schedule ends after 1/N of the loop",
                        (made.lineno,),
                    )


def _counted_loader(script: Script, length: ast.expr, made: ast.AST, depth: int = 4) -> str:
    """Return the loader in whose len() a number of steps is counted, through the names that it goes by."""
    for node in ast.walk(length):
        if isinstance(node, ast.Call) and script.dotted(node.func) == "len" and node.args:
            return script.dotted(node.args[0])
    for node in ast.walk(length):
        if isinstance(node, ast.Name) and depth:
            value = script.assigned(node.id, made)
            found = _counted_loader(script, value, made, depth - 1) if value is not None else ""
            if found:
                return found
    return ""


def _counted_at(script: Script, length: ast.expr, made: ast.Call) -> int:
    """Return the line in which len() is taken."""
    if any(isinstance(n, ast.Call) and script.dotted(n.func) == "len" for n in ast.walk(length)):
        return length.lineno
    for node in ast.walk(length):
        if isinstance(node, ast.Name):
            value = script.assigned(node.id, made)
            if value is not None and _counted_loader(script, value, made):
                return value.lineno
    return made.lineno


def _walks_all(script: Script, name: str) -> bool:
    return any(
        _use_of_original(script, each) is not None
        for each in script.prepared
        if each.original == name != each.result
    )


def backward_without_accelerator(script: Script) -> Iterator[Spot]:
    """The loss goes backward by itself in a script that prepares its model with Accelerate."""
    prepared_in = {
        script.tree if each.result.startswith(_OF_OBJECT) else each.scope
        for each in script.prepared
    }
    for call in script.backwards:
        is_own = call.owner not in script.accelerators and not call.node.args
        is_prepared = not prepared_in.isdisjoint(_functions_around(script, call.node))
        if is_own and is_prepared and script.loop(call.node):
            yield Spot(call.node, f"{call.name or 'loss.backward'}() beside accelerator.prepare")


def batch_is_moved_by_hand(script: Script) -> Iterator[Spot]:
    """A batch of the prepared loader is moved to the device again."""
    results = {each.result for each in script.prepared if each.result}
    for loop in script.training_loops:
        if not isinstance(loop, (ast.For, ast.AsyncFor)):
            continue
        if not any(_iterates(script, loop, name) for name in results):
            continue
        held = _parts_of_batch(loop)
        for node in ast.walk(loop):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                moved = _root(node.func.value)
                if node.func.attr in {"to", "cuda"} and moved in held and _is_device(script, node):
                    yield Spot(node, f"{moved} is already on this process's GPU")
                    break


def _parts_of_batch(loop: ast.For | ast.AsyncFor) -> set[str]:
    held = _names(loop.target)
    for node in ast.walk(loop):
        if isinstance(node, (ast.comprehension, ast.For)) and _root(node.iter) in held:
            held |= _names(node.target)
    return held


def _names(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _root(node: ast.expr) -> str:
    """Return the name that a part of it is taken of: batch of batch["x"], batch.x, batch.items()."""
    while isinstance(node, (ast.Subscript, ast.Attribute, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_device(script: Script, call: ast.Call) -> bool:
    if not call.args:
        return not any(k.arg == "dtype" for k in call.keywords)
    name = script.dotted(call.args[0])
    return "dtype" not in name and (not name.startswith("torch.") or "device" in name)
