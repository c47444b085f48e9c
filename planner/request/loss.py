"""Whether a model and a framework have the loss, and the step, that a recipe asks for."""

from planner.catalog import records
from planner.core.errors import InvalidInputError
from planner.domain.framework import Framework
from planner.domain.job import Recipe
from planner.domain.model import Model

_STANDARD = "standard"
_STEPS_IN_BACKWARD = ("torch", "accelerate")
"""Frameworks whose gradients are the parameters' own, for Tensor.register_post_accumulate_grad_hook to free."""


def check_loss(loss: str, model: Model, framework: Framework) -> None:
    """Refuse a loss that the framework has not, or that the model has no use for.

    Raises:
        InvalidInputError: names the losses and the frameworks that there are.
    """
    if loss == _STANDARD:
        return
    if not model.has_token_loss:
        raise InvalidInputError(
            f"a {loss} loss is of logits over a vocabulary: {model.name} is trained for {model.task}",
            hint="--loss standard",
            field="recipe.loss",
        )
    if loss not in framework.capabilities.losses:
        records_of_all = map(records.framework, records.framework_names())
        able = [each.name for each in records_of_all if loss in each.capabilities.losses]
        raise InvalidInputError(
            f"loss {loss!r} is not estimated for {framework.name}",
            hint=f"{framework.name} has {', '.join(framework.capabilities.losses)}; {loss} is that of"
            f" {', '.join(able)}",
            field="recipe.loss",
        )


def check_step_in_backward(recipe: Recipe, framework: Framework) -> None:
    """Refuse to step inside backward where gradients stay whole all the same, or need a look at all of them.

    Raises:
        InvalidInputError: the framework has gradient buffers of its own, or a loss scale is checked first.
    """
    if not recipe.optimizer_in_backward:
        return
    if framework.name not in _STEPS_IN_BACKWARD:
        raise InvalidInputError(
            f"optimizer_in_backward is not estimated for {framework.name}, whose gradients have buffers of"
            " their own or are stepped together",
            hint=f"it is for {', '.join(_STEPS_IN_BACKWARD)}",
            field="recipe.optimizer_in_backward",
        )
    if recipe.precision == "fp16-mixed":
        raise InvalidInputError(
            "a loss scale in fp16 is checked over all gradients before any is stepped",
            hint="--precision bf16-mixed, or no --optimizer-in-backward",
            field="recipe.optimizer_in_backward",
        )
