"""How plans stand after a race -> the winner's files in a folder, and the runs in a machine file."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from planner.calibrate.anchors import anchored
from planner.calibrate.logs.log_file import shown
from planner.calibrate.runs import machine_of_runs, unrepeated
from planner.core.errors import InvalidInputError
from planner.core.files import open_file
from planner.generate.folder import write_files
from planner.generate.plan_json import OWN, WRITTEN, with_measured
from planner.machine.document import Machine, MeasuredRun
from planner.machine.reading import parse_machine, read_machine
from planner.machine.writing import write_machine
from planner.race.rounds import Standing

_SOURCE = "planner race"


def write_winner(
    folder: Path, winner: Standing, answer: dict[str, Any], *, force: bool
) -> tuple[str, ...]:
    """Write the files of the winner, its plan.json with what was measured; return the names of edited ones that are kept.

    Raises:
        InvalidInputError: see `write_files`.
    """
    own = winner.entrant.folder
    plan = json.loads((own / OWN).read_text(encoding="utf-8"))
    files = {
        name: _text(own / name)
        for name in plan.get(WRITTEN, {})
        if name != OWN and _is_below(own, name)
    }
    measured = next(each for each in answer["plans"] if each["name"] == winner.entrant.name)
    fields = ("steps", "step", "peak_bytes", "reserved_bytes")
    return write_files(
        folder,
        {**files, OWN: with_measured(plan, {name: measured[name] for name in fields}, files)},
        force=force,
    )


def _is_below(folder: Path, name: str) -> bool:
    """Return whether a name is of a file in a folder: a plan.json may come from anybody."""
    path = (folder / name).resolve()
    return path.is_relative_to(folder.resolve()) and path.is_file()


def _text(file: Path) -> str:
    with open_file(file) as stream:
        return stream.read().decode(errors="replace")


def machine_to_grow(file: str, gpu: str, known: object) -> Machine | None:
    """Return the machine that runs are added to: of the file, else of the request; None where runs begin one.

    Raises:
        InvalidInputError: the file cannot be read or written, or is of other GPUs.
    """
    path, machine = Path(file), None
    if path.is_dir():
        raise _refusal(f"{shown(file) or 'an empty name'} is a folder", "name a file: machine.json")
    if not os.access(path if path.exists() else path.parent, os.W_OK) and path.parent.is_dir():
        raise _refusal(f"{shown(file)} cannot be written", "name a file in a folder that is yours")
    if path.exists():
        machine = read_machine(file)
    elif not path.parent.is_dir():
        raise _refusal(f"there is no folder {shown(str(path.parent))}", "make it first")
    elif known:
        machine = parse_machine(known)
    if machine is not None and machine.cluster.gpu != gpu:
        raise _refusal(
            f"{shown(file)} is of {machine.cluster.gpu}, and the plans are of {gpu}",
            "a machine has a file of its own",
        )
    return machine


def grow(file: str, known: Machine | None, standings: Sequence[Standing]) -> int:
    """Add what runs measured to a machine file, or begin one; return how many runs it has then, 0 where nothing was measured.

    Raises:
        PlannerError: see `anchored`; or the file cannot be written.
    """
    runs = [run for each in standings if (run := _run(each)) is not None]
    if not runs:
        return 0
    if Path(file).is_file():  # as it is now: another race may have added to it meanwhile
        known = read_machine(file)
    today = datetime.now(UTC).date().isoformat()
    machine = replace(machine_of_runs(unrepeated(runs, known), known), created=today)
    machine, _ = anchored(machine)
    write_machine(machine, file)
    return len(machine.runs)


def _run(standing: Standing) -> MeasuredRun | None:
    """Return what was measured of one plan; of one that ran out of memory what it held, where that is more than planned."""
    planned = standing.entrant.planned
    if standing.step is not None:
        peaks = [each.log.peak_bytes or 0.0 for each in standing.readings if each.log]
        return MeasuredRun(
            request=planned.request,
            step_seconds=standing.step.median,
            peak_bytes=max(peaks, default=0.0) or None,
            source=_SOURCE,
        )
    if standing.held_bytes > planned.reserved_bytes.likely:
        return MeasuredRun(
            request=planned.request, reserved_bytes=standing.held_bytes, source=_SOURCE
        )
    return None


def _refusal(message: str, hint: str) -> InvalidInputError:
    return InvalidInputError(message, hint=hint, field="--output")
