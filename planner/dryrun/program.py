"""The process of a dry run: a folder's train.py itself takes two steps; the peaks go to stdout as JSON."""

import contextlib
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from planner.core.errors import PlannerError
from planner.dryrun.load_fake_gpu import load_fake_gpu

STEPS = 2
"""The first one creates the optimizer's states, the second one has them."""
MOST_MICRO_BATCHES = 2
"""That are accumulated: the second finds the gradients of the first, later ones the same."""


def main() -> None:
    """Print {"peaks": {phase: bytes}, "seconds": ...}, or {"error": ..., "hint": ...}."""
    folder, rank, world_size, node_size = Path(sys.argv[1]), *map(int, sys.argv[2:5])
    try:
        with contextlib.redirect_stdout(sys.stderr):
            result = dry_run(folder, rank, world_size, node_size)
    except PlannerError as error:
        result = {"error": error.message, "hint": error.hint}
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
    # A thread of autograd for the device that is not there would be waited for.
    os._exit(0)


def dry_run(folder: Path, rank: int, world_size: int, node_size: int) -> dict[str, Any]:
    """Return the peaks of a step's phases on one rank, and what it took to find them."""
    start = time.perf_counter()
    load_fake_gpu()
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from planner.dryrun.follow import Memory, phases_of
    from planner.dryrun.stand_ins import stand_in

    memory = Memory()
    stand_in(memory, rank=rank, world_size=world_size, node_size=node_size)
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    settings: Any = importlib.import_module("settings")
    micro_batches = _accumulate_less(settings, world_size)
    sys.argv = ["train.py", "--init", "random", "--steps", str(STEPS), "--no-save-model"]
    sys.argv += ["--output", os.devnull + "-none"]
    with FakeTensorMode(allow_non_fake_inputs=True), memory, phases_of(memory):
        train: Any = importlib.import_module("train")
        _report_steps(memory)
        train.main()
    return {
        "peaks": memory.steps[-1],
        "micro_batches": micro_batches,
        "seconds": time.perf_counter() - start,
        "torch": torch.__version__,
    }


def _report_steps(memory: Any) -> None:
    """Let the script's report say where a step ends."""
    report: Any = importlib.import_module("report")
    show = report.Report.show

    def show_and_end(*args: Any, **kwargs: Any) -> None:
        show(*args, **kwargs)
        memory.end_step()

    report.Report.show = show_and_end


def _accumulate_less(settings: Any, world_size: int) -> int:
    """Lower the batch of a script to two micro-batches; return how many are left."""
    each = settings.MICRO_BATCH_SIZE * world_size
    number: int = max(1, settings.GLOBAL_BATCH_SIZE // each)
    settings.GLOBAL_BATCH_SIZE = each * min(number, MOST_MICRO_BATCHES)
    return min(number, MOST_MICRO_BATCHES)


if __name__ == "__main__":
    main()
