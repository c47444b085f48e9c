"""What goes wrong when a script runs as several processes: devices, files, data, how it is started."""

import ast
import re
from collections.abc import Iterator

from planner.core.python_source import constant
from planner.doctor.scripts.ranks import asks_for_rank, is_for_one_rank
from planner.doctor.scripts.reading import Script, Spot

_FIXED_CUDA = re.compile(r"cuda:\d+")
_SHARDED = (
    "ParallelismConfig",
    "fully_shard",
    "FullyShardedDataParallel",
    "FullyShardedDataParallelPlugin",
    "FSDP",
    "deepspeed",
    "DeepSpeedPlugin",
)
"""Where all ranks must save together, and the model may not be wrapped."""
_DATA_PARALLEL = ("torch.nn.DataParallel", "nn.DataParallel", "torch.nn.parallel.DataParallel")
_FIRST_SAVES = "`if dist.get_rank() == 0:` around the writing, then dist.barrier()"
_MOST_CALLERS, _MOST_CALLS = 3, 20
"""Functions around a call that are followed, and the calls of each."""
_SEEDS = ("manual_seed", "set_seed", "seed_everything", "random_state", "generator", "seed")


def model_is_split_by_device_map(script: Script) -> Iterator[Spot]:
    """A model is spread over all GPUs by device_map, in a script for one process per GPU."""
    if not script.is_distributed:
        return
    for call in script.calls:
        named = call.said("device_map")
        if named in {"auto", "balanced", "balanced_low_0", "sequential"}:
            yield Spot(call.node, f'device_map="{named}" in a script for a process per GPU')


def data_parallel_is_one_process(script: Script) -> Iterator[Spot]:
    """nn.DataParallel drives all GPUs from one process."""
    if script.has_ddp:
        return
    for call in script.called("DataParallel"):
        if call.name in _DATA_PARALLEL:
            yield Spot(call.node, "nn.DataParallel: five exchanges in every step through GPU 0")


def all_ranks_use_one_gpu(script: Script) -> Iterator[Spot]:
    """A fixed GPU is named in a script for one process per GPU."""
    if not script.is_distributed:
        return
    for call in script.called("to", "device", "cuda", "set_device"):
        value = constant(call.node.args[0]) if call.node.args else None
        is_name = isinstance(value, str) and _FIXED_CUDA.fullmatch(value)
        is_index = type(value) is int and call.last in {"cuda", "set_device"}
        if is_name or is_index:
            yield Spot(call.node, f"every process uses {value!r}")


def device_is_not_set(script: Script) -> Iterator[Spot]:
    """Processes join a group with NCCL, and never say which GPU is whose."""
    if script.has_accelerator or script.mentions("set_device", "device_id"):
        return
    joins = script.called("init_process_group")
    is_bare = any(
        (call.last == "cuda" and call.owner != "torch" and not call.node.args)
        or (call.last == "to" and _is_constant(call.node, "cuda"))
        for call in script.called("cuda", "to")
    )
    if joins and is_bare and not script.mentions("CUDA_VISIBLE_DEVICES", "gloo"):
        yield Spot(joins[0].node, "no torch.cuda.set_device: every process is on GPU 0")


def _is_constant(call: ast.Call, value: str) -> bool:
    return any(constant(each) == value for each in call.args)


def main_is_not_guarded(script: Script) -> Iterator[Spot]:
    """Processes are started at the top of a module, outside `if __name__ == "__main__":`."""
    spawns = script.called("spawn", "start_processes", "notebook_launcher")
    asks = [
        c for c in script.called("set_start_method", "get_context") if _is_constant(c.node, "spawn")
    ]
    workers = [c for c in script.called("DataLoader") if _is_count(c.said("num_workers"))]
    iterates = any(_is_at_top(script, loop) for loop in script.training_loops)
    for call in (*spawns, *(workers if asks or iterates else ())):
        if call.last == "notebook_launcher" or not _is_at_top(script, call.node):
            continue
        yield Spot(
            call.node,
            f'{call.last} starts processes outside of `if __name__ == "__main__":`, which fails under spawn and forkserver',
        )
        return


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value > 0


def _is_at_top(script: Script, node: ast.AST) -> bool:
    if script.scope(node) is not script.tree:
        return False
    return not any(
        isinstance(above, ast.ClassDef)
        or (isinstance(above, ast.If) and "__name__" in ast.unparse(above.test))
        for above in script.above(node)
    )


def every_rank_tokenises(script: Script) -> Iterator[Spot]:
    """Every process maps the data set at once, each with several workers."""
    first = (
        "main_process_first",
        "local_main_process_first",
        "is_main_process",
        "barrier",
        "wait_for_everyone",
    )
    if not script.is_distributed and not script.called("Trainer", "TrainingArguments"):
        return
    if script.mentions(*first):
        return
    for call in script.called("map"):
        if call.keyword("num_proc") is not None:
            yield Spot(
                call.node, "every process maps the whole data set, with num_proc workers each"
            )
            return


def every_rank_saves(script: Script) -> Iterator[Spot]:
    """Every process writes the same file."""
    if not script.is_distributed:
        return
    for call in script.called("save", "save_pretrained", "push_to_hub"):
        if call.name != "torch.save" and (call.last == "save" or script.mentions(*_SHARDED)):
            continue
        if not script.gives(call, "is_main_process") and not _is_of_one_rank(script, call.node):
            yield Spot(
                call.node,
                f"every process calls {call.last}",
                fix="" if script.has_accelerator else _FIRST_SAVES,
            )


def _is_of_one_rank(script: Script, node: ast.AST, depth: int = _MOST_CALLERS) -> bool:
    """Return whether only some ranks come here: by an `if` around it, a return above it, or its name."""
    for above in script.above(node):
        if isinstance(above, (ast.If, ast.IfExp)) and asks_for_rank(script, above.test):
            return True
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if any(is_for_one_rank(each) for each in above.decorator_list):
                return True
            for statement in above.body:
                is_above = statement.lineno < getattr(node, "lineno", 0)
                if (
                    is_above
                    and isinstance(statement, ast.If)
                    and asks_for_rank(script, statement.test)
                ):
                    return True
            if depth and _is_called_by_one_rank(script, above.name, depth - 1):
                return True
    return False


def _is_called_by_one_rank(script: Script, name: str, depth: int) -> bool:
    calls = script.called(name)[:_MOST_CALLS]
    return bool(calls) and all(_is_of_one_rank(script, call.node, depth) for call in calls)


def saved_while_wrapped(script: Script) -> Iterator[Spot]:
    """The weights of a wrapped model are saved."""
    if script.mentions(*_SHARDED):
        return
    wrapped = {each.result for each in script.prepared if each.result}
    for call in script.called("DistributedDataParallel"):
        parent = script.parents.get(call.node)
        if isinstance(parent, ast.Assign):
            wrapped |= {script.dotted(target) for target in parent.targets}
    forwarded = {call.name for call in script.calls}
    for call in script.called("state_dict", "save_pretrained"):
        if call.owner in wrapped & forwarded and _is_written(script, call.node, call.last):
            made = script.assigned(call.owner, call.node)
            unwraps = isinstance(made, ast.Call) and script.dotted(made.func).endswith(
                "unwrap_model"
            )
            if not unwraps:
                yield Spot(call.node, f"{call.owner} is wrapped: unwrap it before {call.last}")


def _is_written(script: Script, node: ast.Call, last: str) -> bool:
    if last == "save_pretrained":
        return True
    return any(
        isinstance(above, ast.Call) and script.dotted(above.func).endswith("save")
        for above in script.above(node)
    )


def split_differs_by_rank(script: Script) -> Iterator[Spot]:
    """Each process divides training and validation data for itself, by dice without a seed."""
    if not script.is_distributed or script.mentions(*_SEEDS):
        return
    for call in script.called("random_split", "train_test_split"):
        yield Spot(call.node, f"{call.last} without a seed differs on every process")
        return
