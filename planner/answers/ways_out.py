"""What there is where nothing fits: each change that helps, at the cost of its own plan."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from planner.advice.plan import Plan
from planner.core import deadline
from planner.core.errors import (
    InvalidInputError,
    NothingFitsError,
    Remedy,
    TookTooLongError,
    UnsupportedError,
    WayOut,
)
from planner.memory.host import estimate_host_memory
from planner.request.schema import Request, Resolved, parse_request
from planner.search.largest_that_fits import cost_of
from planner.search.training_run import HOUR_SECONDS

PlanOf = Callable[[Request], tuple[Resolved, Plan]]
_MILLION = 1_000_000


def with_ways_out(
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
    planned = [(each, _planned(each, request, plan_of)) for each in error.remedies]
    is_batch_said = request.recipe.global_batch_size or request.recipe.global_batch_tokens
    kept = [
        (_at_its_cost(remedy, plan, batch), plan)
        for remedy, plan in planned
        if plan or not remedy.cost or is_batch_said
    ]
    found = tuple(remedy for remedy, _ in kept)
    fitting = (_way_out(remedy, plan) for remedy, plan in kept if plan and remedy.name)
    hint = "; ".join(each.sentence for each in found) or error.hint
    ways_out = (*error.ways_out[:1], *fitting, *error.ways_out[1:]) if error.ways_out else ()
    return NothingFitsError(error.message, hint, error.field, found, ways_out)


def _planned(remedy: Remedy, request: Request, plan_of: PlanOf) -> Plan | None:
    """Return the plan of a request with a remedy; None where it has none."""
    try:
        _, plan = plan_of(_with(remedy, request))
    except (InvalidInputError, NothingFitsError, UnsupportedError):
        return None
    except TookTooLongError:  # what it found so far is of another request
        raise TookTooLongError(deadline.no_answer(), deadline.with_less()) from None
    return plan


def _with(remedy: Remedy, request: Request) -> Request:
    section, _, name = remedy.field.partition(".")
    payload = request.model_dump(exclude_unset=True)
    if not name:
        return parse_request({**payload, section: None})
    switches: dict[str, Any] = {"true": True, "false": False}
    value = (
        int(remedy.value) if remedy.value.isdigit() else switches.get(remedy.value, remedy.value)
    )
    return parse_request({**payload, section: {**(payload.get(section) or {}), name: value}})


def _at_its_cost(remedy: Remedy, plan: Plan | None, batch: int) -> Remedy:
    if plan is None or not remedy.cost or plan.job.recipe.global_batch_size == batch:
        return remedy
    return replace(remedy, cost=cost_of(plan.job, plan.chosen))


def _way_out(remedy: Remedy, plan: Plan) -> WayOut:
    """Return a remedy's line: its memory, its step, and the price of the run's tokens, or of a million."""
    job, chosen = plan.job, plan.chosen
    cluster, instance = job.cluster, job.cluster.instance
    whole = plan.rollout.chosen if plan.rollout else None
    step_seconds = whole.step.step_seconds if whole else float(chosen.step_time.step_seconds)
    held = whole.most_bytes if whole else float(chosen.memory.reserved_bytes)
    tokens = job.recipe.training_tokens or _MILLION
    hours = step_seconds * tokens / job.text_tokens_per_step / HOUR_SECONDS
    offloads = chosen.strategy.offloads_optimizer
    host = estimate_host_memory(job, chosen.strategy).training_bytes if offloads else 0
    return WayOut(
        name=remedy.name,
        flag=remedy.flag,
        field=remedy.field,
        value=remedy.value,
        fits=True,
        reserved_bytes=round(held),
        usable_bytes=round(job.usable_bytes),
        host_bytes=round(float(host)),
        sequences=job.recipe.global_batch_size,
        step_seconds=step_seconds,
        tokens=tokens,
        gpu_hours=hours * (whole.all_gpus if whole else cluster.world_size),
        usd=hours * (whole or cluster).nodes * instance.usd_per_hour if instance else 0.0,
    )
