"""What goes wrong in training loops of plain PyTorch and of Accelerate: accumulation, samplers, reading the loss."""

import ast
from collections.abc import Iterator

from planner.core.python_source import Called, Loop
from planner.doctor.scripts.ranks import is_divided
from planner.doctor.scripts.reading import Script, Spot

_WITHOUT_EXCHANGE = (
    "no_sync",
    "accumulate",
    "set_requires_gradient_sync",
    "require_backward_grad_sync",
    "set_is_last_backward",
    "sync_gradients",
)
_SAMPLERS = (
    "DistributedSampler",
    "split_dataset_by_node",
    "DistributedBatchSampler",
    "StatefulDistributedSampler",
    "IterableDataset",
    "batch_sampler",
    "sampler",
    "streaming",
    "ParallelAwareDataloader",
)


def accumulation_does_not_divide(script: Script) -> Iterator[Spot]:
    """Gradients of several micro-batches are added up, and the loss is not divided by their number."""
    for loop in _accumulating_loops(script):
        for call in _backwards_in(script, loop):
            if not _divides(script, call, loop):
                yield Spot(
                    call.node,
                    "the optimizer steps every few batches, the loss is not divided by their number",
                )


def loss_is_divided_twice(script: Script) -> Iterator[Spot]:
    """The loss is divided by accelerator.gradient_accumulation_steps, which accelerator.backward does too."""
    makers = script.called("Accelerator")
    if not any(each.keyword("gradient_accumulation_steps") for each in makers):
        return
    for call in script.backwards:
        loop = script.loop(call.node)
        if call.owner not in script.accelerators or loop is None:
            continue
        steps = f"{call.owner}.gradient_accumulation_steps"
        for node in ast.walk(loop):
            is_part = isinstance(node, ast.BinOp) and _is_part_of_loss(script, node, call)
            is_changed = isinstance(node, ast.AugAssign) and _is_loss(script, node.target, call)
            divisor = _divisor(node) if is_part or is_changed else None
            if divisor is not None and script.dotted(divisor) == steps:
                yield Spot(call.node, f"{call.name} divides the loss by the steps once more")
                break


def _divisor(node: ast.AST) -> ast.expr | None:
    if not isinstance(getattr(node, "op", None), ast.Div):
        return None
    if isinstance(node, ast.AugAssign):
        return node.value
    return node.right if isinstance(node, ast.BinOp) else None


def accumulation_exchanges_every_time(script: Script) -> Iterator[Spot]:
    """Gradients are accumulated, but exchanged among the GPUs after every micro-batch."""
    if not (script.has_ddp or script.has_accelerator) or script.mentions(*_WITHOUT_EXCHANGE):
        return
    for loop in _accumulating_loops(script):
        for call in _backwards_in(script, loop):
            yield Spot(
                call.node,
                "every micro-batch exchanges its gradients: neither no_sync nor accumulate",
            )


def _accumulating_loops(script: Script) -> Iterator[Loop]:
    """Yield training loops whose optimizer steps under `if ... % ...`."""
    for loop in script.training_loops:
        for node in ast.walk(loop):
            is_step = isinstance(node, ast.Call) and script.dotted(node.func).endswith(".step")
            if is_step and any(
                isinstance(above, ast.If) and _has_modulo(above.test)
                for above in script.above(node)
                if above is not loop
            ):
                yield loop
                break


def _has_modulo(test: ast.expr) -> bool:
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in ast.walk(test))


def _backwards_in(script: Script, loop: Loop) -> list[Called]:
    return [call for call in script.backwards if script.loop(call.node) is loop]


def _divides(script: Script, call: Called, loop: Loop) -> bool:
    if call.owner in script.accelerators:
        makers = script.called("Accelerator")
        if any(each.keyword("gradient_accumulation_steps") for each in makers):
            return True
        if any(each.keyword("gradient_accumulation_plugin") for each in makers):
            return True
    if script.mentions("deepspeed"):
        return True
    return any(
        isinstance(getattr(node, "op", None), (ast.Div, ast.Mult))
        for node in ast.walk(loop)
        if (isinstance(node, ast.AugAssign) and _is_loss(script, node.target, call))
        or (isinstance(node, ast.BinOp) and _is_part_of_loss(script, node, call))
    )


def _loss_names(script: Script, call: Called) -> set[str]:
    """Return the names of what goes backward: the owner of the method, or the argument."""
    nodes = [*call.node.args, call.node.func]
    names = {script.dotted(n) for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}
    return names - script.accelerators


def _is_loss(script: Script, target: ast.expr, call: Called) -> bool:
    return script.dotted(target) in _loss_names(script, call)


def _is_part_of_loss(script: Script, node: ast.BinOp, call: Called) -> bool:
    for above in script.above(node):
        if above is call.node:
            return True
        if isinstance(above, ast.Assign):
            return any(_is_loss(script, target, call) for target in above.targets)
        if isinstance(above, ast.stmt):
            return False
    return False


def sampler_never_changes(script: Script) -> Iterator[Spot]:
    """A DistributedSampler shuffles in the same order in every epoch."""
    if script.mentions("set_epoch") or script.has_accelerator or not script.training_loops:
        return
    for call in script.called("DistributedSampler"):
        if call.said("shuffle") is False:
            continue
        if any(script.loop(loop) is not None for loop in script.training_loops):
            yield Spot(call.node, "no set_epoch: every epoch has the same order")
            return


def every_process_loads_everything(script: Script) -> Iterator[Spot]:
    """The model is wrapped in DistributedDataParallel, and the data is not divided among the processes."""
    if not script.has_ddp or script.has_accelerator or script.mentions(*_SAMPLERS):
        return
    for loop in script.training_loops:
        iterated = script.dotted(loop.iter) if isinstance(loop, ast.For) else ""
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and loop.iter.args:
            iterated = script.dotted(loop.iter.args[0])
        made = script.assigned(iterated, loop) if iterated else None
        is_loader = isinstance(made, ast.Call) and script.dotted(made.func).endswith("DataLoader")
        if isinstance(made, ast.Call) and is_loader and not is_divided(script, made):
            yield Spot(
                made,
                f"{iterated} (line {loop.lineno}) gives the whole data to every process",
                (loop.lineno,),
            )


def loss_is_read_every_step(script: Script) -> Iterator[Spot]:
    """The loss is copied to the processor in every step."""
    for call in script.backwards:
        loop = script.loop(call.node)
        if loop is None:
            continue
        losses = _loss_names(script, call)
        for read in script.called("item"):
            is_plain = script.loop(read.node) is loop and not any(
                isinstance(above, ast.If) and loop in script.above(above)
                for above in script.above(read.node)
            )
            owner = ast.walk(read.node.func)
            if is_plain and any(isinstance(n, ast.Name) and n.id in losses for n in owner):
                yield Spot(read.node, "the loss is read in every step, which waits for the GPU")
                return
