"""What is taken of a recipe where a request says nothing, in words."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from planner.domain.job import Job
from planner.request.cluster import Assumption


def usual_choices(taken: Mapping[str, str], said: Collection[str]) -> list[Assumption]:
    """Return what was left to custom as one assumption; none where all of it was said.

    Args:
        taken: a recipe's choices by field, such as its precision.
        said: the fields that the request names.
    """
    left = [name for name in taken if name not in said]
    field = f"recipe.{left[0]}" if len(left) == 1 else "recipe"
    text = ", ".join(f"{taken[name]} {name}" for name in left)
    return [Assumption(text=text, field=field)] if left else []


def weights_assumption(job: Job) -> list[Assumption]:
    """Return what was taken for the weights' dtype, where the config names 16 bit."""
    in_config = replace(job, recipe=replace(job.recipe, weights_dtype="config"))
    if not in_config.is_in_config_dtype:
        return []
    named = job.model.weights_dtype
    text = (
        f"weights in {named}, as the config says, gradients and optimizer states with them; a suggestion"
        " and its files train fp32 weights"
    )
    if not job.is_in_config_dtype:
        text = (
            f"weights in fp32, though the config says {named}, which an estimate takes where nothing"
            " is said"
        )
    return [Assumption(text=text, field="recipe.weights_dtype")]
