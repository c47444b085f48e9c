"""What `planner race --json` printed, as it is posted: who ran, and what each showed."""

from typing import Literal

from pydantic import Field, ValidationError

from planner.core.errors import InvalidInputError
from planner.core.strict_json import parse_json
from planner.request.field_problems import what_is_wrong
from planner.request.wire import WireModel

RACE_HINT = "send the JSON that planner race printed"
_LONGEST_SECONDS, _MOST_BYTES = 1e6, 2**50
_LONGEST_NAME, _LONGEST_REASON = 200, 2000


class RacedStep(WireModel):
    """The median step of a plan, and where it lies with odds of 19 in 20; of several starts the least and the largest."""

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
    starts: int = Field(default=1, ge=0, le=100)
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


def read_race(text: str, field: str) -> RaceRequest:
    """Return the race that a pasted text holds.

    Args:
        text: JSON.
        field: that it was pasted into, for an error.

    Raises:
        InvalidInputError: it is none; says what is wrong first.
    """
    try:
        return RaceRequest.model_validate(parse_json(text))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        said = f"{place[:80] or 'the text'}: {what_is_wrong(first)}"
    except (ValueError, RecursionError) as error:
        said = f"it is no JSON: {str(error)[:200]}"
    raise InvalidInputError(said, hint=RACE_HINT, field=field)
