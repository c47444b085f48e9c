"""What a mixture of experts takes in a framework that deals its experts over ranks."""

from dataclasses import replace

from planner.advice.choice import chosen_layout
from planner.advice.rules.base import OtherFramework
from planner.advice.rules.shape import keeps_experts_together
from planner.catalog import records
from planner.domain.framework import Framework
from planner.domain.job import Job
from planner.domain.optimizer import ADAMW
from planner.targets import launch, targets_of


def with_dealt_experts(job: Job) -> OtherFramework | None:
    """Return the fastest choice of a framework with expert parallelism, for a mixture in one without.

    Only frameworks that have files of some model, in the recipe's precision and method; those with files
    of this choice before those without.
    """
    if not keeps_experts_together(job):
        return None
    found = [
        OtherFramework(
            name=variant.framework.name,
            chosen=chosen,
            has_files=bool(launch(variant, chosen.strategy).targets),
        )
        for framework in map(records.framework, records.framework_names())
        if (variant := _in(job, framework)) and (chosen := chosen_layout(variant, {}))
    ]
    return min(found, key=_rank, default=None)


def _rank(found: OtherFramework) -> tuple[bool, bool, float]:
    """Return what puts the fastest in front that deals experts, of those the fastest with files."""
    s, seconds = found.chosen.strategy, float(found.chosen.step_time.step_seconds)
    is_undealt = s.expert_parallel_size == 1
    return is_undealt, not (found.has_files or is_undealt), seconds


def _in(job: Job, framework: Framework) -> Job | None:
    """Return the job in a framework that deals experts; None where that has not what the recipe names."""
    if not framework.capabilities.expert_parallel or not targets_of(framework.name):
        return None
    recipe = job.recipe
    if recipe.optimizer in ADAMW:
        recipe = replace(recipe, optimizer=framework.usual_optimizer)
    if recipe.precision not in framework.precisions or recipe.optimizer not in framework.optimizers:
        return None
    if recipe.loss not in {"standard", *framework.losses}:
        return None
    return replace(job, framework=framework, recipe=recipe, pipeline_layout=())
