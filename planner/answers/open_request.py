"""What a request leaves open, decided; and the nearest request that has files, where its own has none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from planner.advice.choice import Contender, best_of
from planner.advice.offers import Offer
from planner.advice.plan import Plan
from planner.core.errors import PlannerError
from planner.core.units import format_seconds
from planner.domain.cluster import Cluster
from planner.domain.job import Job
from planner.request.remarks import Assumption
from planner.request.schema import Request, Resolved, resolve
from planner.request.stacks import other_stacks, stack_of
from planner.request.strategy import pinned_fields
from planner.search.largest_that_fits import with_gpus

_LET_GO: tuple[tuple[str, ...], ...] = (
    ("attention",),
    ("compile",),
    ("loss",),
    ("optimizer",),
    ("precision", "fp8_recipe", "weights_dtype"),
    ("framework", "framework_version"),
    ("framework", "framework_version", "attention", "compile", "loss", "optimizer"),
    ("framework", "framework_version", "precision", "fp8_recipe", "weights_dtype", "optimizer"),
)
"""What may be said otherwise for there to be files, the least of people's first."""
_TOLD = ("attention", "compile", "loss", "optimizer", "precision", "weights_dtype")


def decided(plan: Plan, stacks: Sequence[Resolved]) -> Resolved:
    """Return the request in the stack that its plan is for, with what was decided among its assumptions."""
    own, taken = stack_of(stacks[0].job), stack_of(plan.job)
    found = next(each for each in stacks if stack_of(each.job) == taken)
    said = [
        Assumption(text=text, field=f"recipe.{name}")
        for name, text in _words(plan, own).items()
        if taken[name] != own[name]
    ]
    return replace(found, assumptions=(*found.assumptions, *said))


def _words(plan: Plan, own: dict[str, object]) -> dict[str, str]:
    usual = f", as {own['framework']} {_usual(plan)}"
    loss = plan.job.recipe.loss
    return {
        "framework": f"{plan.job.framework.name}{usual}",
        "compile": "compiled" if plan.job.recipe.compile else "not compiled",
        "loss": f"{loss} loss",
    }


def _usual(plan: Plan) -> str:
    if plan.usual is None:
        return "has no launch files for a layout that fits"
    return f"would take {format_seconds(plan.usual.step_time.step_seconds)} per step"


def nearest_written(request: Request, plan: Plan, *, allow_paths: bool) -> Offer | None:
    """Return the fastest plan with files of a request as near to the asked one as there is.

    What is said is let go of, one thing after another; at last the layout that was held fixed too.
    """
    for strategy in (request.strategy, None) if request.strategy else (None,):
        for changed in _relaxed(request.model_copy(update={"strategy": strategy})):
            best = _best_written(changed, plan.job.cluster, allow_paths=allow_paths)
            if best is not None:
                dropped = ("strategy",) if strategy is not request.strategy else ()
                changes = _changes(plan.job, best.job)
                return Offer(
                    job=best.job, candidate=best.candidate, changes=changes, dropped=dropped
                )
    return None


def _relaxed(request: Request) -> Iterator[Request]:
    yield request
    said = request.recipe.model_dump(exclude_unset=True)
    for names in _LET_GO:
        if said.keys() & set(names):
            kept = {name: value for name, value in said.items() if name not in names}
            yield request.model_copy(update={"recipe": type(request.recipe)(**kept)})


def _best_written(request: Request, on: Cluster, *, allow_paths: bool) -> Contender | None:
    try:
        own = resolve(request, allow_paths=allow_paths)
        others = other_stacks(request, own, allow_paths=allow_paths)
        jobs = [own.job, *(each.job for each in others)]
        if on.world_size < own.job.cluster.world_size:
            jobs = [with_gpus(each, on.gpus_per_node, on.nodes) for each in jobs]
        best = best_of(jobs, pinned_fields(request.strategy), request.objective)
    except PlannerError:
        return None
    return best if best and best.is_written else None


def _changes(job: Job, other: Job) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if other.framework.name != job.framework.name:
        changes["recipe.framework"] = other.framework.name
    for name in _TOLD:
        value = getattr(other.recipe, name)
        if value != getattr(job.recipe, name):
            changes[f"recipe.{name}"] = value
    return changes
