"""What a machine was measured to do: timed runs by REST in, the machine that requests name out."""

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from api.body import read_wire
from api.fields import in_fields
from api.jobs import Reply, reply_of
from planner.calibrate.anchors import anchored
from planner.calibrate.runs import machine_of_runs, unrepeated
from planner.core.errors import InvalidInputError
from planner.machine.document import MeasuredRun
from planner.machine.reading import build, parse_machine
from planner.machine.writing import machine_json
from planner.models.hub_client import asking_with
from planner.request.schema import Request
from planner.request.wire import WireModel

MOST_RUNS = 64
"""Of a machine, those that it had included: each is estimated again."""
_NAMES = {
    "--runs": "runs",
    "--machine FILE": "machine",
    "--machine": "machine",
    "`planner calibrate`": "POST /v1/machines",
}


class TimedRequest(WireModel):
    """A run of the machine: what was run, and what was measured of it."""

    request: Request
    """As /v1/estimate takes it."""
    step_seconds: float | None = Field(default=None, ge=1e-9, le=1e9)
    peak_bytes: float | None = Field(default=None, ge=1, le=2**60)
    """Allocated, on the fullest GPU."""
    reserved_bytes: float | None = Field(default=None, ge=1, le=2**60)
    source: str = Field(default="", max_length=200)
    """Where it comes from."""


class MachineRequest(WireModel):
    """Timed runs of one machine."""

    runs: list[TimedRequest] = Field(min_length=1, max_length=MOST_RUNS)
    machine: dict[str, Any] | None = None
    """A machine that they are added to, as it was answered."""
    name: str = Field(default="", max_length=200)


def machine(body: bytes, token: str = "") -> Reply:
    """Make the machine of timed runs, and say how each is predicted with it."""
    hint = 'send {"runs": [{"request": {"model": "gpt2", ...}, "step_seconds": 0.4}]}'
    asked = read_wire(MachineRequest, body, hint)
    with asking_with(token), in_fields(_NAMES):
        runs = tuple(_run(each, number) for number, each in enumerate(asked.runs))
        known = None if asked.machine is None else parse_machine(asked.machine)
        made = machine_of_runs(unrepeated(runs, known), known)
        if len(made.runs) > MOST_RUNS:
            said = f"{len(made.runs)} runs of one machine, and {MOST_RUNS} are read here"
            raise InvalidInputError(said, hint="planner calibrate reads 1,000", field="runs")
        made = replace(made, name=asked.name or made.name, created=_today())
        found, checks = anchored(made, allow_paths=False)
    document, predicted = machine_json(found), [asdict(each) for each in checks]
    undated = {"machine": {**document, "created": ""}, "checks": predicted}
    return reply_of({"machine": document, "checks": predicted}, undated)


def _run(asked: TimedRequest, number: int) -> MeasuredRun:
    """Return a run as machines hold it.

    Raises:
        InvalidInputError: nothing was measured, or its request is none.
    """
    said = asked.model_dump(exclude_unset=True)
    if not said.keys() & {"step_seconds", "peak_bytes", "reserved_bytes"}:
        raise InvalidInputError(
            f"run {number + 1} says nothing that was measured",
            hint="step_seconds, peak_bytes or reserved_bytes",
            field=f"runs.{number}",
        )
    try:
        return build(MeasuredRun, said, f"runs.{number}")
    except InvalidInputError as error:
        field = error.field.removeprefix("machine.")
        raise InvalidInputError(error.message, hint=error.hint, field=field) from None


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
