"""A wished strategy -> the layout it means for a job, with every gap filled and every sum checked."""

from planner.core.errors import InvalidInputError, did_you_mean
from planner.domain.job import Job
from planner.domain.strategy import CHOICES, Layout
from planner.request.schema import StrategyRequest
from planner.search.limits import check
from planner.search.wish import Wish, filled


def whole_strategy(wish: StrategyRequest | None, job: Job) -> Layout:
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
    return {name: _value(name, value) for name, value in given.items() if value is not None}


def _value(field: str, value: int | str) -> int:
    """Return what a field of a strategy holds for the contract's value.

    Raises:
        InvalidInputError: a choice that there is not.
    """
    if not isinstance(value, str):
        return value
    kind, name = CHOICES[field], value
    if name not in kind.names():
        raise InvalidInputError(
            f"no {field.replace('_', ' ')} is called {name!r}",
            hint=did_you_mean(name, kind.names()) or f"one of {', '.join(kind.names())}",
            field=f"strategy.{field}",
        )
    return kind(name)
