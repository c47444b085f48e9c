"""What other tools' configurations may hold: `data/configs`, typed."""

from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import Literal

from planner.catalog.config_rules import Held
from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen


@frozen
class Key:
    """What a key of a tool's configuration may hold."""

    type: Literal[
        "section",
        "name",
        "argument",
        "device",
        "dtype",
        "stage",
        "samples",
        "elements",
        "truth",
    ]
    """`planner.configs.rules.values` has a function for each."""
    also: tuple[Literal["auto", "null", "nothing", "number", "truth"], ...] = ()
    """What it takes besides; nothing: all that Python counts as false."""
    names: tuple[str, ...] = ()
    """All that it takes."""
    is_exact: bool = False
    """Whether upper and lower case of a name differ."""
    least: int = 0
    example: str = ""
    """Of a section, as its file writes it."""
    is_of_fsdp_1: bool = False
    """Whether FSDP 2 leaves it unread."""


@frozen
class KnownKeys:
    """The keys of a configuration, by section; "top" outside of all."""

    source: str
    version: str
    sections: Mapping[str, tuple[str, ...]]
    removed: tuple[str, ...] = ()
    """With their section."""
    others: tuple[str, ...] = ()
    """Keys without a section that are no slips of these."""
    keys: Mapping[str, Key] = field(default_factory=dict)
    """What keys may hold, with their section."""


@frozen
class Launcher:
    """The flags of a command that starts processes."""

    version: str
    values: tuple[str, ...]
    """That take a value."""
    switches: tuple[str, ...]
    before_script: tuple[str, ...] = ()
    """Names of flags that do nothing after the script, where no script has them for something else."""
    of_others: Mapping[str, str] = field(default_factory=dict)
    """What it has no flag for, as another launcher calls it, and its own."""


@frozen
class Program:
    """A command that starts the processes, and trains."""

    title: str
    commands: Mapping[str, str]
    """What it is told to do, and what it trains then where that is no SFT; "" for SFT, or for what its flags say."""
    tool: str = ""
    """The record of its flags; "" where they are not read."""
    package: str = ""
    """Whose modules are its commands; "" where it is not known to have such."""


@frozen
class Launchers:
    """The record."""

    source: str
    launchers: Mapping[str, Launcher]
    programs: Mapping[str, Program]


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
    others: tuple[str, ...]
    """Fields of scripts and of other programs that are no slips of these."""
    keys: Mapping[str, Key]
    optimizers: Mapping[str, str]
    """The planner's names of optimizers, by what these and DeepSpeed's file call them."""
    attentions: Mapping[str, str]
    """The planner's names of kernels of attention, by those of transformers and of kernels' packages."""
    shardings: Mapping[str, int]
    """ZeRO stages, by FSDP's names of them in upper case, and by their numbers."""

    @property
    def names(self) -> frozenset[str]:
        """Return all fields."""
        return frozenset({*self.without_default, *self.defaults})

    @property
    def ever(self) -> tuple[str, ...]:
        """Return all fields, and those of earlier releases."""
        return (*self.names, *self.renamed, *self.removed)


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
    chunked_loss: tuple[str, ...]
    """Whose loss is a function of what their head returns, up to a factor."""
    first_loss: tuple[str, ...]
    """Whose random weights begin at the loss of `planner.generate.first_lines.random_loss`."""


@frozen
class Meaning:
    """What a setting of a tool is as settings of ours, where it holds what is said here."""

    at: Held
    where: tuple[Held, ...] = ()
    unless: tuple[Held, ...] = ()
    gives: Mapping[str, bool | int | str] = field(default_factory=dict)
    """Values by our keys."""
    moves: str = ""
    """Which way it moves an estimate that leaves it out; "" where `gives` is all of it."""


@frozen
class Tool:
    """What each key of a program's files is for us."""

    title: str
    source: str
    version: str
    reads: tuple[str, ...]
    """Read under their own names."""
    no_effect: tuple[str, ...]
    """Neither memory nor the time of a step follows from them."""
    others: tuple[str, ...] = ()
    """Of all keys, those that its own schema has not: of plugins, of other releases."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Keys of earlier releases that this one refuses, and what says the same now."""
    same: Mapping[str, str] = field(default_factory=dict)
    """What a setting is called here, by what it is called there."""
    defaults: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """What counts where a file says nothing, by our keys."""
    unmodelled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Keys by the way they move what is estimated without them."""
    means: tuple[Meaning, ...] = ()
    keys: Mapping[str, Key] = field(default_factory=dict)
    """What keys of its own may hold."""

    @property
    def ways(self) -> Mapping[str, str]:
        """Return which way a key that is not modelled moves an estimate."""
        return {key: way for way, keys in self.unmodelled.items() for key in keys}

    @property
    def known(self) -> frozenset[str]:
        """Return all keys that it says something of."""
        return frozenset({*self.reads, *self.no_effect, *self.same, *self.ways})


@frozen
class Sign:
    """By what a tool's file is known."""

    title: str
    keys: tuple[str, ...]
    """All of them are there."""
    like: str = ""
    """A regular expression of what the first of them holds."""
    kind: str = ""
    """Whose settings they are read as; "" where the file is known, and not read."""
    tool: str = ""
    """The record of its keys."""
    suffixes: tuple[str, ...] = (".json", ".yaml", ".yml")


@frozen
class Signs:
    """The record: the first that is met counts."""

    source: str
    sign: tuple[Sign, ...]


@cache
def signs() -> tuple[Sign, ...]:
    """Return by what each tool's files are known, the surest first."""
    return build(Signs, read("configs", "signs"), "configs/signs").sign


@frozen
class Asked:
    """Settings of files that are known, and not read, which ask for what no plan is made for."""

    of: str
    """The title of their sign."""
    keys: tuple[str, ...]
    """One of them is there, and on."""
    asks: str


@frozen
class AskedSettings:
    """The record."""

    source: str
    setting: tuple[Asked, ...]


@cache
def asked() -> tuple[Asked, ...]:
    """Return what such settings ask for: `data/configs/asked.toml`."""
    return build(AskedSettings, read("configs", "asked"), "configs/asked").setting


@cache
def tool(name: str) -> Tool:
    """Return what the keys of a tool's files are for us."""
    return build(Tool, read("configs/tools", name), f"configs/tools/{name}")


@cache
def known_keys(tool: str) -> KnownKeys:
    """Return the keys of a tool's configuration: accelerate, deepspeed, torchtitan."""
    return build(KnownKeys, read("configs", tool), f"configs/{tool}")


def launchers() -> Mapping[str, Launcher]:
    """Return the flags of each launcher, by its name."""
    return _launchers().launchers


def programs() -> Mapping[str, Program]:
    """Return the programs that start and train, by their name; a package's modules by its."""
    return _launchers().programs


@cache
def _launchers() -> Launchers:
    return build(Launchers, read("configs", "launchers"), "configs/launchers")


def keys_of(tool: str) -> Mapping[str, Key]:
    """Return what keys of a tool may hold: accelerate, deepspeed, trainer."""
    if tool != "trainer":
        return known_keys(tool).keys
    defaults = trainer_fields().defaults.items()
    truths = {name: Key(type="truth") for name, value in defaults if isinstance(value, bool)}
    return {**truths, **trainer_fields().keys}


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
