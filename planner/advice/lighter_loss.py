"""A loss that never holds all logits, taken where without it nothing fits on the GPUs."""

from planner.advice.choice import chosen_layout
from planner.advice.plan import Plan, make_plan
from planner.core.errors import NothingFitsError
from planner.domain.job import Job
from planner.search.largest_that_fits import lighter_losses
from planner.search.pinned_fields import PinnedFields
from planner.targets import launch


def plan_of_any_loss(job: Job, pinned: PinnedFields) -> Plan:
    """Return the plan of a job whose loss was left open.

    Logits of a long sequence take more than a layer does. A loss that computes them in parts has the same
    result, so it is taken before the host's memory is.

    Raises:
        InvalidInputError, NothingFitsError: see `make_plan`.
    """
    try:
        plan = make_plan(job, pinned)
    except NothingFitsError:
        lighter = _lighter(job, pinned)
        if lighter is None:
            raise
        return make_plan(lighter, pinned)
    if "offload" in pinned or not plan.chosen.strategy.offloads_optimizer:
        return plan
    lighter = _lighter(job, pinned)
    return plan if lighter is None else make_plan(lighter, pinned)


def _lighter(job: Job, pinned: PinnedFields) -> Job | None:
    """Return the job with the loss that is fastest on the GPUs alone and has launch files, if any is."""
    found = []
    for _, changed in lighter_losses(job):
        chosen = chosen_layout(changed, pinned)
        if chosen is None or not launch(changed, chosen.strategy).targets:
            continue
        if not chosen.strategy.offloads_optimizer:
            found.append((float(chosen.step_time.step_seconds), changed))
    return min(found, key=lambda each: each[0])[1] if found else None
