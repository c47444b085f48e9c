"""A wished strategy -> the layout it means for a job, with every gap filled and every sum checked."""

from planner.domain.job import Job
from planner.domain.strategy import Strategy
from planner.request.schema import StrategyRequest
from planner.search.limits import check
from planner.search.wish import Wish, filled


def whole_strategy(wish: StrategyRequest | None, job: Job) -> Strategy:
    """Return the one layout to estimate; what the wish leaves open is the simplest choice.

    Raises:
        UnsupportedError: a degree or technique that is not estimated for such a model or framework.
        InvalidInputError: sizes do not multiply to the world size, do not divide the model, or the
            batch does not split.
    """
    strategy = filled(job, partial_wish(wish))
    check(job, strategy)
    return strategy


def partial_wish(wish: StrategyRequest | None) -> Wish:
    """Return the fields that were given, which a suggestion must hold fixed."""
    given = wish.model_dump(exclude_unset=True) if wish else {}
    return {name: value for name, value in given.items() if value is not None}
