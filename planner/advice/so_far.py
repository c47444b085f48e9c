"""What is said when the time for an answer is over: the best layout that was found until then."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from planner.advice.choice import (
    Contender,
    best_of_found,
    contender,
    contenders,
    refusal,
    taken,
)
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


def choose_in_time(
    stacks: Sequence[Job], pinned: PinnedFields | None, objective: str
) -> tuple[Contender, list[Contender]]:
    """Return the layout to run of all that are legal in any stack, and the best of each.

    Raises:
        PlannerError: see `planner.advice.choice.refusal`.
        SoFarError: the time was over when some were looked at, of which one may be proposed.
    """
    found: list[Contender] = []
    held = pinned or {}
    try:
        found.extend(contenders(stacks, held, objective))
        if not found:
            raise refusal(stacks, held)
        return taken(found, held, objective), found
    except LateSearchError as late:
        # Where nothing fits, other jobs are searched too, for what would.
        is_of_it = late.looked_at is not None and any(late.looked_at.job is each for each in stacks)
        raise (best_so_far(late, found, held, objective) if is_of_it else None) or late from None


def best_so_far(
    late: LateSearchError, found: Sequence[Contender], pinned: PinnedFields, objective: str
) -> SoFarError | None:
    """Return the layout to run of those that were looked at; None where there is none."""
    results = [each.result for each in found]
    if late.looked_at is not None:
        last = contender(late.looked_at, pinned, objective)
        found, results = [*found, *([last] if last else [])], [*results, late.looked_at]
    if not found:
        return None
    best = found[0] if len(found) == 1 else best_of_found(found, objective)
    return SoFarError(
        f"{sum(each.size for each in results):,} layouts were looked at", best.job, best.candidate
    )


@contextmanager
def or_so_far(chosen: Contender) -> Iterator[None]:
    """Say the choice, where the time is over before the rest of its plan is made.

    Raises:
        SoFarError: it was over.
    """
    try:
        yield
    except TookTooLongError:
        said = "the layout was chosen, and its plan not made"
        raise SoFarError(said, chosen.job, chosen.candidate) from None
