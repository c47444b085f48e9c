"""A machine whose curves were measured -> a run of its own plan, started here: what all the curves leave out.

The plan is `planner suggest`'s for that model on that machine, with the largest batch of which `_STEPS` steps, as planned,
take no more than the time that is left once PyTorch has started. Its files run as a user would run them, and their log is
read as any log.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from planner.answers import answer_suggestion, suggest_layout
from planner.calibrate.logs.layout import measured_run
from planner.calibrate.logs.reading import read_log_bytes
from planner.core.errors import NothingFitsError, UnsupportedError
from planner.core.units import format_seconds
from planner.generate.write_bundle import write_targets
from planner.machine.document import Machine, MeasuredRun
from planner.machine.own_gpu import CORES
from planner.machine.writing import machine_json
from planner.request.schema import Request, parse_request
from planner.verify.planned import read_planned
from planner.verify.run import Length, run_bundle

SOURCE = "a real step, measured with the machine"
START_SECONDS = 10.0
"""That starting a script, building its model and its first step are taken to need."""
_STEPS = 6
_SEQUENCES = (16, 8, 4, 2, 1)
"""Of each process and step, the first that there is time for."""
_GRACE = 3.0
"""Times the time that is left, after which a run is told to end that takes longer than planned."""


def real_step(
    machine: Machine,
    model: str | Mapping[str, Any],
    *,
    sequence_length: int,
    seconds: float,
    show: Callable[[str], None],
) -> MeasuredRun:
    """Return a run of a model on all measured GPUs of this node.

    Args:
        machine: what was measured, of one node.
        model: to train, with random weights, as a request has it.
        sequence_length: tokens.
        seconds: until the run should have ended.
        show: what is said of it, line by line.

    Raises:
        PlannerError: there is no time for it, no plan fits, or the run fails.
    """
    end = time.monotonic() + seconds
    with TemporaryDirectory(prefix="planner-step-") as scratch:
        folder = Path(scratch) / "plan"
        _write(machine, model, sequence_length, seconds - START_SECONDS, folder)
        planned = read_planned(str(folder))
        left = end - time.monotonic()
        show(f"{_STEPS} real steps; at most {left:.0f} s to go")
        log = run_bundle(
            planned,
            Length(steps=_STEPS, limit_seconds=_GRACE * max(left, START_SECONDS)),
            on_cpus=planned.is_of_cpus,
            show=_unshown,
        )
    run, _ = measured_run(read_log_bytes("run.log", log), planned.request)
    return replace(run, source=SOURCE)


def _unshown(_: str) -> None:
    """Leave a line of the run out: its end is told where it fails."""


def _write(machine: Machine, model: object, length: int, seconds: float, folder: Path) -> None:
    """Write the files of the largest batch whose steps take no more than so many seconds.

    Raises:
        PlannerError: there is none.
    """
    shortest = math.inf
    for sequences in _SEQUENCES:
        request = _request(machine, model, length, sequences)
        try:
            resolved, plan = suggest_layout(request, allow_paths=True)
        except NothingFitsError:
            if sequences == _SEQUENCES[-1]:
                raise
            continue
        shortest = _STEPS * float(plan.chosen.step_time.step_seconds)
        if shortest <= seconds:
            write_targets(folder, plan, answer_suggestion(request, resolved, plan), force=False)
            return
    raise UnsupportedError(
        f"{_STEPS} steps take {format_seconds(shortest)} and {START_SECONDS:.0f} s to start, and"
        f" {max(0.0, seconds + START_SECONDS):.0f} s are left",
        hint="--budget gives more",
    )


def _request(machine: Machine, model: object, length: int, sequences: int) -> Request:
    """Return what is planned: so many sequences of each process, in fp32 on cores."""
    is_of_cores = machine.cluster.gpu.startswith(CORES)
    recipe: dict[str, Any] = {
        "sequence_length": length,
        "global_batch_size": sequences * machine.cluster.gpus_per_node,
        **({"precision": "fp32"} if is_of_cores else {}),
    }
    whole = {"model": model, "recipe": recipe, "machine": machine_json(machine)}
    return parse_request(whole)
