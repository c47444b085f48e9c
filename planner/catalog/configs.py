"""What other tools' configurations may hold: `data/configs`, typed."""

from collections.abc import Mapping
from dataclasses import field
from functools import cache

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen


@frozen
class KnownKeys:
    """The keys of a configuration, by section; "top" outside of all."""

    source: str
    version: str
    sections: Mapping[str, tuple[str, ...]]
    removed: tuple[str, ...] = ()
    """At the top."""
    removed_of_zero: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of keys of any section that take one of a few names, all of them."""


@frozen
class Launcher:
    """The flags of a command that starts processes."""

    version: str
    values: tuple[str, ...]
    """That take a value."""
    switches: tuple[str, ...]
    of_others: Mapping[str, str] = field(default_factory=dict)
    """What it has no flag for, as another launcher calls it, and its own."""


@frozen
class Launchers:
    """The record."""

    source: str
    launchers: Mapping[str, Launcher]


@frozen
class TrainerFields:
    """The fields of TrainingArguments."""

    source: str
    version: str
    without_default: tuple[str, ...]
    defaults: Mapping[str, bool | int | float | str]
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Fields of earlier releases, and what says the same now."""
    removed: Mapping[str, str] = field(default_factory=dict)
    """Fields of earlier releases that are gone, and what takes their place; "" for nothing."""
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of fields that take one of a few names, all of them."""
    optimizers: Mapping[str, str]
    """The planner's names of optimizers, by what these and DeepSpeed's file call them."""

    @property
    def names(self) -> frozenset[str]:
        """Return all fields."""
        return frozenset({*self.without_default, *self.defaults})


@frozen
class LayerClasses:
    """The class of a model's layers in transformers, by model_type."""

    source: str
    version: str
    classes: Mapping[str, tuple[str, ...]]


@frozen
class ModelSupport:
    """What models, by model_type, cannot have of transformers, and can of Liger."""

    source: str
    version: str
    without_attention: Mapping[str, tuple[str, ...]]
    """Models that are not built with an attention, by its name in a recipe."""
    without_recompute: tuple[str, ...]
    fused_loss: tuple[str, ...]
    """Whose loss Liger computes without the logits."""
    first_loss: tuple[str, ...]
    """Whose random weights begin at the loss of `planner.generate.first_lines.random_loss`."""


@cache
def known_keys(tool: str) -> KnownKeys:
    """Return the keys of a tool's configuration: accelerate, deepspeed, torchtitan."""
    return build(KnownKeys, read("configs", tool), f"configs/{tool}")


@cache
def launchers() -> Mapping[str, Launcher]:
    """Return the flags of each launcher, by its name."""
    return build(Launchers, read("configs", "launchers"), "configs/launchers").launchers


@cache
def trainer_fields() -> TrainerFields:
    """Return the fields of TrainingArguments."""
    return build(TrainerFields, read("configs", "trainer"), "configs/trainer")


@cache
def model_support() -> ModelSupport:
    """Return which models lack an attention or recomputation, and which have a fused loss."""
    return build(ModelSupport, read("configs", "model_support"), "configs/model_support")


@cache
def layer_classes() -> Mapping[str, tuple[str, ...]]:
    """Return the classes of each model_type's layers."""
    return build(LayerClasses, read("configs", "layer_classes"), "configs/layer_classes").classes
