"""A loss that never holds all logits, taken where without it nothing fits on the GPUs."""

from planner.advice.choice import chosen_layout, searched
from planner.advice.plan import Plan, make_plan
from planner.advice.refusal import nothing_fits
from planner.core.errors import NothingFitsError
from planner.domain.job import Job
from planner.search.candidate import Candidate
from planner.search.largest_that_fits import lighter_losses
from planner.search.pinned_fields import PinnedFields
from planner.targets import launch


def plan_of_any_loss(job: Job, pinned: PinnedFields) -> Plan:
    """Return the plan of a job whose loss was left open.

    Logits of a long sequence take more than a layer does. A loss that computes them in parts has the same
    result, so it is taken where only the host's memory would do. It restricts the files and with them the
    layouts, so not where the plan with logits is faster whatever the errors of both are.

    Raises:
        InvalidInputError, NothingFitsError: see `make_plan`.
    """
    try:
        plan = make_plan(job, pinned)
    except NothingFitsError:
        lighter = _lighter(job, pinned)
        if lighter is None:
            raise _nothing_fits(job, pinned) from None
        return make_plan(lighter, pinned)
    if "offload" in pinned or not plan.chosen.strategy.offloads_optimizer:
        return plan
    if _fits_on_gpus(job, pinned):
        return plan
    lighter = _lighter(job, pinned)
    if lighter is None:
        return plan
    other = make_plan(lighter, pinned)
    return plan if _is_surely_faster(plan, other) else other


def _nothing_fits(job: Job, pinned: PinnedFields) -> NothingFitsError:

    def chosen(other: Job) -> Candidate | None:
        best = chosen_layout(other, pinned)
        lighter = None if best else _lighter(other, pinned)
        return chosen_layout(lighter, pinned) if lighter else best

    return nothing_fits(
        searched(job, pinned), pinned, chosen, lambda other: _lighter(other, pinned) is not None
    )


def _fits_on_gpus(job: Job, pinned: PinnedFields) -> bool:
    """Return whether the job fits with its logits; its plan then offloads for being faster so."""
    chosen = chosen_layout(job, pinned)
    return chosen is not None and not chosen.strategy.offloads_optimizer


def _is_surely_faster(plan: Plan, other: Plan) -> bool:
    longest, shortest = plan.chosen.step_time.high_seconds, other.chosen.step_time.low_seconds
    return bool(plan.launch.targets) and bool(longest < shortest)


def _lighter(job: Job, pinned: PinnedFields) -> Job | None:
    found = []
    for _, changed in lighter_losses(job):
        chosen = chosen_layout(changed, pinned)
        if chosen is None or not launch(changed, chosen.strategy).targets:
            continue
        if not chosen.strategy.offloads_optimizer:
            found.append((float(chosen.step_time.step_seconds), changed))
    return min(found, key=lambda each: each[0])[1] if found else None
