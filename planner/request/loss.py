"""Whether a model and a framework have the loss that a recipe asks for."""

from planner.catalog import records
from planner.core.errors import InvalidInputError
from planner.domain.framework import Framework
from planner.domain.model import Model

_STANDARD = "standard"


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
