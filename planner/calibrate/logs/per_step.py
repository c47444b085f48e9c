"""How much a log says that one step trains on, beside its configuration -> whether the layout says the same."""

from collections.abc import Mapping
from typing import Any, Literal

from planner.core.frozen import frozen
from planner.domain.job import sequences_of_a_sample

Of = Literal["sequences", "tokens", "either", "tokens of a rank"]

_MOST_APART = 0.4
"""Of an amount; what is known no better says nothing."""


@frozen
class PerStep:
    """One amount that a log says of every step."""

    amount: float
    of: Of
    """What is counted; "either" where releases count sequences or tokens."""
    apart: float = 0.01
    """How far rounding may have moved it, as a fraction."""
    is_least: bool = False
    """Whether a step may hold more: tokens without loss are not counted."""


def tokens_of_a_sample(recipe: Mapping[str, Any]) -> int:
    """Return how many tokens a sample of a request's recipe has, of a pair those of both; 0 where no length is said."""
    length: int = recipe.get("sequence_length") or 0
    return length * sequences_of_a_sample(recipe.get("job"))


def other_batch(said: PerStep, batch: int, request: Mapping[str, Any], ranks: int) -> str:
    """Return what a log says of its step where the layout's is another; "" where it is the same.

    Args:
        said: by the log.
        batch: sequences of the layout's step.
        request: of the layout.
        ranks: of the layout.
    """
    tokens = batch * tokens_of_a_sample(request["recipe"])
    planned = {
        "sequences": (batch,),
        "tokens": (tokens,),
        "either": (batch, tokens),
        "tokens of a rank": (tokens / ranks,),
    }[said.of]
    if said.apart > _MOST_APART or any(_is_same(said, each) for each in planned):
        return ""
    return (
        f"global_batch_size {said.amount:.6g}"
        if said.of in {"sequences", "either"}
        else f"{said.amount:,.0f} {said.of} a step"
    )


def _is_same(said: PerStep, planned: float) -> bool:
    low, high = said.amount * (1 - said.apart), said.amount * (1 + said.apart)
    return low <= planned and (planned <= high or said.is_least)
