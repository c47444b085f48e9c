"""What published runs trained with, by what they trained: `data/recipes/learning_rates.toml` -> typed records."""

import math
from functools import cache
from typing import Any, Literal

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen


@frozen
class Pretraining:
    """From how many tokens on a run is one from random weights."""

    tokens_per_parameter: float
    tokens: float
    """Enough for any model."""
    source: str


@frozen
class Scaling:
    """How a rate follows the global batch outside of its source's range."""

    exponent: float
    largest_factor: float
    """Of the batch over the upper end of the range: more raises the rate no further."""
    source: str


@frozen
class BesideAdamW:
    """What an optimizer takes, as multiples of AdamW's figures."""

    rate_factor: float = 1.0
    decay_factor: float = 1.0
    source: str = ""


@frozen
class Recipe:
    """AdamW's settings in a published run."""

    start: Literal["random", "pretrained"]
    method: Literal["full", "lora"] = "full"
    tasks: tuple[str, ...] = ()
    """Of `planner.domain.model.Model.task`; empty for those that no other recipe names."""
    model_types: tuple[str, ...] = ()
    """Of config.json; empty for those that no other recipe names."""
    parameters: float
    learning_rate: float
    batch: tuple[float, ...]
    """Smallest and largest global batch at which the source takes the rate."""
    batch_unit: Literal["tokens", "sequences"]
    beta2: float
    weight_decay: float
    """Of matrices; biases and the scales of norms do not decay."""
    warmup_fraction: float
    """Share of the steps."""
    source: str

    def sequences(self, sequence_length: int) -> tuple[float, ...]:
        """Return the smallest and largest batch at which the source takes the rate, in sequences."""
        unit = sequence_length if self.batch_unit == "tokens" else 1
        return tuple(end / unit for end in self.batch)

    def rate(self, sequences: float, tokens: float) -> float:
        """Return the learning rate for a global batch, given in both units.

            rate = learning_rate * (b / end) ** exponent, where b / end <= largest_factor

        Notation: b the batch in the recipe's unit; end that end of its range which is nearest to b.
        Source: `[scaling]` of the file.
        """
        low, high = self.batch
        batch = tokens if self.batch_unit == "tokens" else sequences
        factor = batch / min(max(batch, low), high)
        rules = scaling()
        rate: float = self.learning_rate * min(factor, rules.largest_factor) ** rules.exponent
        return rate


def find_recipe(
    *, task: str, model_type: str, is_pretrained: bool, has_adapters: bool, parameters: float
) -> Recipe:
    """Return the recipe that says most of such a model, of the run nearest in size."""
    start = "pretrained" if is_pretrained or has_adapters else "random"
    method = "lora" if has_adapters else "full"
    fitting = [
        recipe
        for recipe in recipes()
        if (recipe.start, recipe.method) == (start, method)
        and (not recipe.tasks or task in recipe.tasks)
        and (not recipe.model_types or model_type in recipe.model_types)
    ]

    def distance(recipe: Recipe) -> tuple[bool, bool, float]:
        size = abs(math.log(max(parameters, 1) / recipe.parameters))
        return (not recipe.model_types, not recipe.tasks, size)

    return min(fitting, key=distance)


@cache
def recipes() -> tuple[Recipe, ...]:
    """Return all recipes, in the order of the file."""
    entries = enumerate(_record()["recipe"])
    return tuple(build(Recipe, entry, f"recipe[{number}]") for number, entry in entries)


@cache
def beside_adamw(optimizer: str) -> BesideAdamW:
    """Return what an optimizer takes; AdamW's own figures where its paper compares none."""
    entry = _record()["optimizers"].get(optimizer, {})
    return build(BesideAdamW, entry, f"optimizers.{optimizer}")


@cache
def pretraining() -> Pretraining:
    """Return from how many tokens on a run is one from random weights."""
    return build(Pretraining, _record()["pretraining"], "pretraining")


@cache
def scaling() -> Scaling:
    """Return how rates follow the batch."""
    return build(Scaling, _record()["scaling"], "scaling")


@cache
def _record() -> dict[str, Any]:
    return read("recipes", "learning_rates")
