"""The process of a dry run: a folder's train.py itself takes two steps; the peaks go to stdout as JSON."""

import contextlib
import importlib
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.core.errors import PlannerError
from planner.dryrun.load_fake_gpu import load_fake_gpu

STEPS = 2
"""The first one creates the optimizer's states, the second one has them."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Who the process is among those of the plan; the words of its command, in their order."""

    rank: int
    world_size: int
    node_size: int
    data_size: int
    """Ranks that have a batch of their own."""
    most_micro_batches: int


def main() -> None:
    """Print {"peaks": {phase: bytes}, "seconds": ...}, or {"error": ..., "hint": ...}."""
    numbers = Numbers(*map(int, sys.argv[2:]))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            result = dry_run(Path(sys.argv[1]), numbers)
    except PlannerError as error:
        result = {"error": error.message, "hint": error.hint}
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
    # A thread of autograd for the device that is not there would be waited for.
    os._exit(0)


def dry_run(folder: Path, numbers: Numbers) -> dict[str, Any]:
    """Return the peaks of a step's phases on one rank, and what it took to find them."""
    start = time.perf_counter()
    load_fake_gpu()
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from planner.dryrun.follow import Memory, phases_of
    from planner.dryrun.stand_ins import stand_in

    memory = Memory()
    stand_in(memory, rank=numbers.rank, world_size=numbers.world_size, node_size=numbers.node_size)
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    settings: Any = importlib.import_module("settings")
    micro_batches = _accumulate_less(settings, numbers)
    sys.argv = ["train.py", "--init", "random", "--steps", str(STEPS), "--no-save-model"]
    sys.argv += ["--workers", "0", "--output", f"{tempfile.gettempdir()}/none-of-{os.getpid()}"]
    with FakeTensorMode(allow_non_fake_inputs=True), memory, phases_of(memory):
        train: Any = importlib.import_module("train")
        _end_steps(memory)
        train.main()
    return {
        "peaks": memory.steps[-1],
        "micro_batches": micro_batches,
        "seconds": time.perf_counter() - start,
        "torch": torch.__version__,
    }


def _end_steps(memory: Any) -> None:
    """Let what every rank asks after a step, whether to stop, say where the step ends."""
    checkpoints: Any = importlib.import_module("checkpoints")
    agreed = checkpoints.Stop.agreed

    def end_and_agree(stop: Any) -> Any:
        memory.end_step()
        return agreed(stop)

    checkpoints.Stop.agreed = end_and_agree


def _accumulate_less(settings: Any, numbers: Numbers) -> int:
    """Lower the batch of a script to as many micro-batches as show its peak; return how many are left."""
    each = settings.MICRO_BATCH_SIZE * numbers.data_size
    number: int = max(1, settings.GLOBAL_BATCH_SIZE // each)
    settings.GLOBAL_BATCH_SIZE = each * min(number, numbers.most_micro_batches)
    return min(number, numbers.most_micro_batches)


if __name__ == "__main__":
    main()
