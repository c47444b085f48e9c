"""What is proposed where nothing fits, with the figures that its own command prints."""

from collections.abc import Callable
from dataclasses import replace

from planner.advice.plan import Plan
from planner.core import deadline
from planner.core.errors import InvalidInputError, NothingFitsError, Remedy, TookTooLongError
from planner.request.schema import Request, Resolved
from planner.search.largest_that_fits import cost_of

PlanOf = Callable[[Request], tuple[Resolved, Plan]]


def with_their_own_batch(
    error: NothingFitsError, request: Request, batch: int, plan_of: PlanOf
) -> NothingFitsError:
    """Return an error whose remedies cost what a request with each of them is planned to take.

    Adapters are usually trained with smaller batches than all weights, so where the request names no batch,
    theirs is another than the one that nothing fits of.

    Args:
        error: with remedies that were tried with the request's batch.
        request: of which nothing fits.
        batch: that it was tried with.
        plan_of: what is planned of a request.
    """
    tried = (_planned(each, request, batch, plan_of) for each in error.remedies)
    found = tuple(each for each in tried if each is not None)
    hint = "; ".join(each.sentence for each in found) or error.hint
    return NothingFitsError(error.message, hint=hint, field=error.field, remedies=found)


def _planned(remedy: Remedy, request: Request, batch: int, plan_of: PlanOf) -> Remedy | None:
    """Return a remedy at the cost of its own plan; None where that has none."""
    recipe = request.recipe
    is_batch_said = recipe.global_batch_size or recipe.global_batch_tokens
    if not remedy.cost or is_batch_said:
        return remedy
    changed = recipe.model_copy(update={remedy.field.removeprefix("recipe."): remedy.value})
    try:
        _, plan = plan_of(request.model_copy(update={"recipe": changed}))
    except (InvalidInputError, NothingFitsError):
        return None
    except TookTooLongError:  # what it found so far is of another request
        raise TookTooLongError(deadline.no_answer(), deadline.with_less()) from None
    is_same = plan.job.recipe.global_batch_size == batch
    return remedy if is_same else replace(remedy, cost=cost_of(plan.job, plan.chosen))
