"""A measured run -> one more line of a machine.json."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from planner import __version__
from planner.calibrate.anchors import anchored
from planner.calibrate.logs.log_file import shown
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
        InvalidInputError: see `machine_for`; or the file cannot be written.
    """
    machine = machine_for(file, planned)
    added, _ = anchored(replace(machine, runs=(*machine.runs, *unrepeated([run], machine))))
    write_machine(added, file)
    return len(added.runs)


def machine_for(file: str, planned: Planned) -> Machine:
    """Return the machine that runs of a plan are added to: what the file holds, or one without runs.

    Raises:
        InvalidInputError: the file is of other GPUs, cannot be read, or cannot begin with this plan.
    """
    path, cluster = Path(file), planned.data["job"]["cluster"]
    if planned.generates:
        raise _refusal(
            "a step of GRPO is no step of training alone, which a machine's runs are",
            "leave it out: the run is compared all the same",
        )
    if path.exists():
        machine = read_machine(file)
        if machine.cluster.gpu != planned.gpu:
            raise _refusal(
                f"{shown(file)} is of {machine.cluster.gpu}, and the plan of {planned.gpu}",
                "a machine has a file of its own",
            )
        return machine
    if not path.parent.is_dir():
        raise _refusal(f"there is no folder {shown(str(path.parent))}", "make it first")
    if planned.is_of_cpus:
        raise _refusal(
            f"{shown(file)} cannot begin with a run of CPUs, which no record describes",
            "--append the machine file that the plan was made with (--machine), or a copy of it",
        )
    gpus = Hardware(gpu=planned.gpu, gpus_per_node=cluster["gpus_per_node"], nodes=planned.nodes)
    today = datetime.now(UTC).date().isoformat()
    return Machine(created=today, cluster=gpus, planner=__version__)


def _refusal(message: str, hint: str) -> InvalidInputError:
    return InvalidInputError(message, hint=hint, field="--append")
