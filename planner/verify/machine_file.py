"""A measured run -> one more line of a machine.json."""

from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from planner.calibrate.anchors import anchored
from planner.calibrate.runs import unrepeated
from planner.core.errors import InvalidInputError
from planner.machine.document import Hardware, Machine, MeasuredRun
from planner.machine.reading import read_machine
from planner.machine.writing import write_machine
from planner.verify.planned import Planned


def append_run(file: str, planned: Planned, run: MeasuredRun) -> int:
    """Add a run to a machine.json, or begin one, and make its anchors; return how many runs it has then.

    A run that it has already is not added.

    Raises:
        InvalidInputError: the file is of other GPUs, or cannot be read or written.
    """
    cluster = planned.data["job"]["cluster"]
    of_plan = Hardware(gpu=planned.gpu, gpus_per_node=cluster["gpus_per_node"], nodes=planned.nodes)
    if Path(file).exists():
        machine = read_machine(file)
        if machine.cluster.gpu != of_plan.gpu:
            raise InvalidInputError(
                f"{file} is of {machine.cluster.gpu}, and the plan of {of_plan.gpu}",
                hint="a machine has a file of its own",
                field="--append",
            )
    else:
        today = datetime.now(UTC).date().isoformat()
        machine = Machine(created=today, cluster=of_plan, planner=version("planner"))
    added, _ = anchored(replace(machine, runs=(*machine.runs, *unrepeated([run], machine))))
    write_machine(added, file)
    return len(added.runs)
