"""What is said when the time for an answer is over: the best layout that was found until then."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from planner.advice.choice import Choice, choose, choose_from, ordinary_rows
from planner.core import deadline
from planner.core.errors import TookTooLongError
from planner.core.units import format_seconds
from planner.domain.job import Job
from planner.search.candidate import Candidate
from planner.search.pinned_fields import PinnedFields
from planner.search.search import LateSearchError


class SoFarError(TookTooLongError):
    """The time was over, and this is the best layout of those that were looked at: it is not the answer."""

    def __init__(self, looked_at: str, job: Job, candidate: Candidate) -> None:
        took = format_seconds(candidate.step_time.step_seconds)
        super().__init__(
            deadline.no_answer(f"{looked_at}; the best layout so far takes {took} per step"),
            hint=deadline.with_less(),
        )
        self.job = job
        self.candidate = candidate

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the job in this process."""
        return TookTooLongError, (self.message, self.hint)


def choose_in_time(job: Job, pinned: PinnedFields | None, objective: str) -> Choice:
    """Return the layout to run of all that are legal.

    Raises:
        PlannerError: see `choose`.
        SoFarError: the time was over when some were looked at, of which one may be proposed.
    """
    try:
        return choose(job, pinned, objective)
    except LateSearchError as late:
        # Where nothing fits, other jobs are searched too, for what would.
        is_of_it = late.looked_at is not None and late.looked_at.job is job
        raise (best_of(late, pinned, objective) if is_of_it else None) or late from None


def best_of(
    late: LateSearchError, pinned: PinnedFields | None, objective: str
) -> SoFarError | None:
    """Return the layout to run of those that a search looked at; None where there is none."""
    found = late.looked_at
    if found is None:
        return None
    ordinary = ordinary_rows(found, pinned or {})
    if not len(ordinary):
        return None
    best = choose_from(found, ordinary, pinned or {}, objective).situation.candidate
    return SoFarError(f"{found.size:,} layouts were looked at", found.job, best)


@contextmanager
def or_so_far(choice: Choice) -> Iterator[None]:
    """Say the choice, where the time is over before the rest of its plan is made.

    Raises:
        SoFarError: it was over.
    """
    try:
        yield
    except TookTooLongError:
        chosen = choice.situation.candidate
        said = "the layout was chosen, and its plan not made"
        raise SoFarError(said, choice.result.job, chosen) from None
