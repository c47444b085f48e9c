"""What a user can get wrong. Each error says what happened and what to do; the doors choose codes."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from planner.core.frozen import frozen

MOST_PROBLEMS = 20
"""Of a request that are listed: a body of a thousand unknown fields is one mistake, not a thousand."""


class PlannerError(Exception):
    """A failure that the user can mend: `message` says what, `hint` what to do, `field` where."""

    def __init__(self, message: str, hint: str = "", field: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.field = field


class InvalidInputError(PlannerError):
    """A field of the request, a flag or a pasted text cannot be read."""


@frozen
class Problem:
    """One thing that is wrong with a request."""

    field: str
    message: str
    hint: str


class InvalidRequestError(InvalidInputError):
    """A request body with one or more problems, all of them listed."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(first.message + more, first.hint, first.field)
        self.problems = problems

    def __reduce__(self) -> tuple[Any, ...]:
        """Say how it is made again in another process."""
        return type(self), (self.problems,)


def problems_of(error: PlannerError) -> tuple[Problem, ...]:
    """Return everything that an error says is wrong, one thing at least."""
    if isinstance(error, InvalidRequestError):
        return error.problems
    return (Problem(field=error.field, message=error.message, hint=error.hint),)


class UnknownNameError(InvalidInputError):
    """A GPU, link, rule or other catalogue name that does not exist."""


class UnsupportedError(PlannerError):
    """The request is well formed, but this version cannot estimate it."""


class ModelNotFoundError(PlannerError):
    """The model could not be resolved: not in the catalogue, not on the Hub, not on disk."""


class ModelAccessError(ModelNotFoundError):
    """The model exists, but needs a licence accepted or a token."""


class HubUnreachableError(ModelNotFoundError):
    """The Hub gave no answer, and there is no cached copy."""


@frozen
class Remedy:
    """One change after which a job fits, on its own."""

    text: str
    """As a hint says it, with the flag."""
    field: str
    """Of the request, that it sets."""
    value: str
    """"" leaves the field out."""
    cost: str = ""
    """What the job takes then, where another training is proposed."""
    name: str = ""
    """The change alone, for a table; "" where it is none of the job's."""
    flag: str = ""

    @property
    def sentence(self) -> str:
        """Return the change and what it costs."""
        return f"{self.text}{self.cost}"


@frozen
class WayOut:
    """One change that was tried where nothing fits, and what the job takes with it."""

    name: str
    flag: str
    """That asks for it at a terminal; "" for the job as it was asked."""
    field: str
    """Of the request, that it sets."""
    value: str
    """"" leaves the field out."""
    fits: bool
    reserved_bytes: int
    """Of each GPU: of the plan with it, or of the smallest layout where that does not fit."""
    usable_bytes: int
    """What a process can take of that."""
    host_bytes: int = 0
    """Of a node's memory, where the plan offloads."""
    sequences: int = 0
    """Of a step of that plan, likewise what follows; 0 where there is none."""
    step_seconds: float = 0.0
    tokens: int = 0
    """That the price is of: those of the run, or a million where nobody says them."""
    gpu_hours: float = 0.0
    usd: float = 0.0
    """0 where no price is known."""


class NothingFitsError(PlannerError):
    """No layout fits the GPUs; the message says by how much."""

    def __init__(
        self,
        message: str,
        hint: str = "",
        field: str = "",
        remedies: tuple[Remedy, ...] = (),
        ways_out: tuple[WayOut, ...] = (),
    ) -> None:
        super().__init__(message, hint, field)
        self.remedies = remedies
        self.ways_out = ways_out
        """The job as it was asked, and all that was tried in its place."""


class TookTooLongError(PlannerError):
    """The time for an answer was over; where it looked at enough, with the best that it had."""

    def __init__(
        self,
        message: str,
        hint: str = "",
        field: str = "",
        best: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, hint, field)
        self.best = best


def did_you_mean(name: str, known: Iterable[str], most: int = 3, *, nearness: float = 0.5) -> str:
    """Return a hint that lists the nearest known names, or an empty string.

    Args:
        name: that is unknown.
        known: what there is.
        most: that are listed.
        nearness: share of the letters that a name must have in common, both taken together.
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower()[:100], by_lower, n=most, cutoff=nearness)
    return f"did you mean {' or '.join(by_lower[match] for match in close)}?" if close else ""
