"""What every target trains with: AdamW's settings, from the recipe that fits the plan."""

from dataclasses import replace

from planner.catalog.learning_rates import beside_adamw, find_recipe
from planner.core.frozen import frozen
from planner.domain.job import trained_for
from planner.generate.run_spec import RunSpec
from planner.targets.common import loads_weights

_FROM_TEXT_ALONE = ("causal-lm", "masked-lm")
"""Tasks that models are trained for from random weights."""


@frozen
class Hyperparameters:
    """AdamW's settings; the first beta is 0.9 everywhere."""

    learning_rate: float
    """After the warm-up; a tenth of it at the end."""
    beta2: float
    weight_decay: float
    warmup_fraction: float
    """Share of the steps."""
    source: str
    is_for_optimizer: bool
    """Whether the rate is meant for the plan's optimizer: AdamW, or one with a factor of its own."""


def hyperparameters(spec: RunSpec, batch_factor: float = 1.0) -> Hyperparameters:
    """Return the settings for a plan, or for its batch times a factor; the rate in two digits."""
    recipe = find_recipe(
        task=trained_for(spec.job, spec.task),
        model_type=str(spec.model_config.get("model_type", "")),
        is_pretrained=starts_from_weights(spec),
        has_adapters=spec.adapters is not None,
        parameters=spec.parameters,
    )
    sequences = batch_factor * spec.global_batch_size
    beside = beside_adamw(spec.optimizer)
    rate = beside.rate_factor * recipe.rate(sequences, sequences * spec.tokens_per_sample)
    return Hyperparameters(
        learning_rate=float(f"{rate:.2g}"),
        beta2=recipe.beta2,
        weight_decay=beside.decay_factor * recipe.weight_decay,
        warmup_fraction=recipe.warmup_fraction,
        source="; ".join(text for text in (recipe.source, beside.source) if text),
        is_for_optimizer="adamw" in spec.optimizer or bool(beside.source),
    )


def starts_from_weights(spec: RunSpec, framework: str = "") -> bool:
    """Return whether the files of the plan's framework, or of another, load the model's trained weights."""
    return spec.is_pretrained and loads_weights(
        framework or spec.framework,
        config=spec.model_config,
        has_adapters=spec.adapters is not None,
    )


def from_random(spec: RunSpec) -> Hyperparameters | None:
    """Return what --init random takes in place of a plan's own settings, None where those are for it."""
    is_meant = spec.is_pretrained and spec.adapters is None and spec.task in _FROM_TEXT_ALONE
    return hyperparameters(replace(spec, is_pretrained=False)) if is_meant else None
