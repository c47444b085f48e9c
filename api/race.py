"""What a race showed, as the command wrote it: what may be posted, and its table. No race is started here."""

from typing import Literal

from pydantic import Field

from api.body import read_wire
from api.jobs import Reply, reply_of
from planner.core.errors import InvalidInputError
from planner.race.results import answer_race
from planner.request.wire import WireModel

_LONGEST_SECONDS, _MOST_BYTES = 1e6, 2**50
_LONGEST_NAME, _LONGEST_REASON = 200, 2000


class RacedStep(WireModel):
    """The median step of a plan, and where it lies with odds of 19 in 20."""

    seconds: float = Field(gt=0, le=_LONGEST_SECONDS)
    low: float = Field(ge=0, le=_LONGEST_SECONDS)
    high: float | None = Field(default=None, gt=0, le=_LONGEST_SECONDS)
    """Null where few steps were taken."""


class RacedPlan(WireModel):
    """What one plan showed."""

    name: str = Field(min_length=1, max_length=_LONGEST_NAME)
    target: str = Field(default="", max_length=_LONGEST_NAME)
    state: Literal["known", "slower", "open", "failed", "not installed"]
    why: str = Field(default="", max_length=_LONGEST_REASON)
    steps: int = Field(ge=0, le=10**9)
    step: RacedStep | None = None
    peak_bytes: float | None = Field(default=None, gt=0, le=_MOST_BYTES)
    reserved_bytes: float | None = Field(default=None, gt=0, le=_MOST_BYTES)
    planned_step_seconds: float = Field(gt=0, le=_LONGEST_SECONDS)
    planned_peak_bytes: float = Field(gt=0, le=_MOST_BYTES)
    planned_reserved_bytes: float = Field(gt=0, le=_MOST_BYTES)


class RaceRequest(WireModel):
    """What `planner race --json` printed."""

    schema_version: str = Field(default="", max_length=20)
    kind: Literal["race"]
    winner: str | None = Field(default=None, max_length=_LONGEST_NAME)
    is_stopped: bool = False
    is_on_planned_gpus: bool = True
    plans: list[RacedPlan] = Field(min_length=1, max_length=64)


def race(body: bytes) -> Reply:
    """Return the table of a race."""
    hint = "send the JSON that planner race printed"
    asked = read_wire(RaceRequest, body, hint)
    if len({each.name for each in asked.plans}) < len(asked.plans):
        raise InvalidInputError("two plans of one name", hint=hint, field="plans")
    return reply_of(answer_race(asked.model_dump()))
