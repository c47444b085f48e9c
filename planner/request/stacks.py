"""A request -> the same training in every stack that it leaves open: framework, loss, torch.compile, attention."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from planner.catalog import records
from planner.catalog.choice import prices
from planner.core.errors import InvalidInputError, PlannerError, UnsupportedError
from planner.domain.framework import Framework
from planner.domain.job import OF_PAIRS, Job
from planner.request.remarks import Assumption
from planner.request.schema import Request, Resolved, resolve
from planner.targets import targets_of, writes_any

_OF_ONE_FRAMEWORK = (
    "framework",
    "framework_version",
    "gradient_reduce_dtype",
    "tensor_parallel_overlap",
    "data_parallel_overlap",
    "expert_dispatch",
    "expert_parallel_overlap",
    "optimizer_in_backward",
    "cuda_graphs",
)
"""Fields that speak of one framework: who says one of them has chosen."""
STANDARD_LOSS = "standard"


def usual_stack(request: Request, *, allow_paths: bool) -> Resolved:
    """Return the request in the usual framework, or in the first that can do what is asked, where it names none.

    Raises:
        PlannerError: see `resolve`.
    """
    try:
        return resolve(request, allow_paths=allow_paths)
    except (InvalidInputError, UnsupportedError) as error:
        able = () if "framework" in request.recipe.model_fields_set else prices().tools
        for name in able:
            recipe = request.recipe.model_copy(update={"framework": name})
            changed = request.model_copy(update={"recipe": recipe})
            try:
                found = resolve(changed, allow_paths=allow_paths)
            except PlannerError:
                continue
            why = Assumption(text=f"{name}, as {error}", field="recipe.framework")
            return replace(found, assumptions=(*found.assumptions, why))
        raise


def other_stacks(request: Request, own: Resolved, *, allow_paths: bool) -> tuple[Resolved, ...]:
    """Return the request in each stack that it leaves open, the fewest things switched on first.

    Args:
        request: what was asked.
        own: it in what is usual; left out of what is returned.
        allow_paths: as for `resolve`.
    """
    found = []
    for framework, compiles, loss in _stacks(request, own):
        changes = {"framework": framework.name, "compile": compiles, "loss": loss}
        if changes == stack_of(own.job):
            continue
        recipe = request.recipe.model_copy(update=changes)
        try:
            changed = request.model_copy(update={"recipe": recipe})
            stack = resolve(changed, allow_paths=allow_paths)
        except PlannerError:  # the framework lacks what is said of the rest of the recipe
            continue
        if writes_any(stack.job):
            found.append(stack)
    return tuple(found)


def stack_of(job: Job) -> dict[str, object]:
    """Return what a request can leave open of its software, as it is in a job; attention follows from it."""
    recipe = job.recipe
    return {"framework": job.framework.name, "compile": recipe.compile, "loss": recipe.loss}


def _stacks(request: Request, own: Resolved) -> Iterator[tuple[Framework, bool, str]]:
    said = request.recipe.model_fields_set
    own_framework = own.job.framework
    is_open = not said & set(_OF_ONE_FRAMEWORK)
    names = [name for name in prices().tools if is_open and name in records.framework_names()]
    for name in dict.fromkeys((own_framework.name, *names)):
        if not targets_of(name):
            continue
        framework = records.framework(name)
        yield from (
            (framework, compiles, loss)
            for compiles, loss in product(
                _compiled(request, framework), _losses(request, own, framework)
            )
        )


def _compiled(request: Request, framework: Framework) -> tuple[bool, ...]:
    if "compile" in request.recipe.model_fields_set:
        return (request.recipe.compile,)
    is_open = framework.compile.is_estimated and request.recipe.job not in OF_PAIRS
    return (False, True) if is_open else (False,)


def _losses(request: Request, own: Resolved, framework: Framework) -> tuple[str, ...]:
    if "loss" in request.recipe.model_fields_set:
        return (request.recipe.loss,)
    if not own.job.model.has_token_loss or own.job.recipe.job in OF_PAIRS:
        return (own.job.recipe.loss,)
    return framework.capabilities.losses
