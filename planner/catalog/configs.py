"""What other tools' configurations may hold: `data/configs`, typed."""

from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import Any, Literal

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen

TAKEN = "which is taken and hardly meant"
"""Ends what is said of a number beyond the usual."""


@frozen
class Key:
    """What a key of a tool's configuration may hold."""

    type: Literal[
        "section", "name", "argument", "device", "dtype", "stage", "samples", "elements", "count"
    ]
    """`planner.configs.rules.values` has a function for each."""
    also: tuple[Literal["auto", "null", "nothing", "number", "range", "truth"], ...] = ()
    """What it takes besides; nothing: all that Python counts as false."""
    names: tuple[str, ...] = ()
    """All that it takes; of a count, beside numbers."""
    is_exact: bool = False
    """Whether upper and lower case of a name differ."""
    least: int = 0
    counts: str = ""
    example: str = ""
    """Of a section, as its file writes it."""
    is_of_fsdp_1: bool = False
    """Whether FSDP 2 leaves it unread."""


@frozen
class Range:
    """Between which numbers a setting makes sense."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    usual: float | None = None
    """More is taken, and hardly meant."""
    is_whole: bool = False
    also: tuple[int, ...] = ()
    """Numbers outside that mean something."""

    def wrong(self, number: float) -> str:
        """Return what is wrong with a number; "" where nothing is."""
        if self.least is not None and number < self.least:
            return f"below {self.least:g}"
        if self.above is not None and number <= self.above:
            return f"not above {self.above:g}"
        if self.most is not None and number > self.most:
            return f"above {self.most:g}"
        if self.below is not None and number >= self.below:
            return f"not below {self.below:g}"
        if self.is_whole and number != int(number):
            return "no whole number"
        is_much = self.usual is not None and number > self.usual
        return f"above {self.usual:g}, {TAKEN}" if is_much else ""

    @property
    def words(self) -> str:
        """Return the range: 1 or more, 0 to 1."""
        low = self.least if self.least is not None else self.above
        high = next((x for x in (self.most, self.below, self.usual) if x is not None), None)
        kind = "a whole number, " if self.is_whole else ""
        start = f"{low or 0:g}" if self.above is None else f"above {low:g}"
        if high is not None:
            end = f"below {high:g}" if self.below is not None else f"{high:g}"
            return f"{kind}{start} to {end}"
        return f"{kind}{start} or more" if self.above is None else f"{kind}{start}"


@frozen
class Ranges:
    """The record: by kind of file or tool, by key of ours."""

    source: str
    kinds: Mapping[str, Mapping[str, Range]]


@frozen
class Multiple:
    """Numbers of a tool's file that go together: the product of some is a multiple of that of others, or as many."""

    of: str
    whole: tuple[str, ...]
    part: tuple[str, ...] = ()
    """() for the GPUs."""
    unless: str = ""
    """What switches it off."""
    over: tuple[str, ...] = ()
    """What divides the part where it is said: sizes of a model's own parallelism, whose GPUs share a batch."""
    optional: tuple[str, ...] = ()
    """Those of them that are 1 where nothing is said."""
    relation: Literal["multiple", "least", "equal"] = "multiple"
    source: str


@frozen
class Multiples:
    """The record."""

    multiple: tuple[Multiple, ...]


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
    keys: Mapping[str, Key]
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
class Held:
    """A setting that is looked for: the first of these keys that is there, where it holds what is said here."""

    keys: tuple[str, ...]
    of: tuple[str, ...] = ()
    """In any file of these tools; () in the same file."""
    is_each: bool = False
    """Whether each of the keys is a place of its own."""
    state: Literal["there", "said", "filled", "given", "auto", "truth", "on", "off", "not off"] = (
        "there"
    )
    """said: not null; filled: nor an empty text; given: nor 0 or off; truth: a truth value, no word for one."""
    like: str = ""
    """A regular expression of the whole text."""
    unlike: str = ""
    word: str = ""
    """The same of a word of it, or an item of its list, which messages then have as its text."""
    number: int | None = None
    least: int | None = None
    most: int | None = None
    is_own: bool = False
    """Whether it stands there under that name, and is not what another key means."""
    is_seen: bool = False
    """Whether it excuses a fault only where the file shows what it holds, and not where that may be so."""
    default: int | None = None
    """Counts where it holds no whole number, or is not there; not for what only the run knows."""


@frozen
class Case:
    """One way in which settings are wrong, what is said of it, and how it is mended."""

    of: tuple[str, ...]
    """Whose files are looked through: kinds, tools of the Trainer's kind; fsdp: options of FSDP in any, fsdp.trainer: in a Trainer's."""
    at: Held
    """The place of the fault."""
    where: tuple[Held, ...] = ()
    """All of these are there, too."""
    unless: tuple[Held, ...] = ()
    """None of these is."""
    is_whole: bool = False
    """Whether the file must show all settings that it gives its tool."""
    run: tuple[str, ...] = ()
    """The run has one of these: deepspeed, fsdp, trainer (which saves the model)."""
    not_run: tuple[str, ...] = ()
    fsdp_version: int | None = None
    gpu_below: str = ""
    """The GPU's compute capability is less."""
    gpu_from: str = ""
    message: str
    """With {at} and, of `where`, {0}, {1}: settings with name, text, whole, said; {gpu.name}; and the {tool}'s title."""
    hint: str = ""
    set: str = ""
    """The value that mends it, as its file writes it; on and off as the file's language has them."""
    set_key: str = ""
    """The key that gets the value, where it is not the place of the fault."""
    rename: str = ""
    remove: bool = False
    level: Literal["error", "warning"] | None = None
    """Where it is not the rule's."""
    level_of_others: Literal["error", "warning"] | None = None
    """Its severity in files of programs that hand some of it on to the Trainer; None for the rule's."""


@frozen
class TabledRule:
    """A rule: what is documented of it, and where it compares settings with values its cases."""

    code: str
    name: str
    severity: Literal["error", "warning"]
    text: str
    """The documentation: a statement, then Why, Instead and Source."""
    cases: tuple[Case, ...] = ()
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By tool, the types of keys whose values it judges."""


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


@cache
def tool(name: str) -> Tool:
    """Return what the keys of a tool's files are for us."""
    return build(Tool, read("configs/tools", name), f"configs/tools/{name}")


@cache
def tabled_rules() -> tuple[TabledRule, ...]:
    """Return the rules by their code, each with its cases; those without are functions."""
    return tuple(_tabled(rule) for rule in read("configs", "rules")["rule"])


def _tabled(rule: dict[str, Any]) -> TabledRule:
    """Return a rule; what stands in the rule itself holds for all of its cases."""
    own = {key: rule[key] for key in ("code", "name", "severity")} | {"text": rule["text"].strip()}
    common = {key: rule[key] for key in rule.keys() - {*own, "cases", "keys"}}
    keys = rule.get("keys", {})
    cases = [common | case for case in rule.get("cases", [{}] if "at" in rule else [])]
    return build(TabledRule, own | {"cases": cases, "keys": keys}, f"configs/rules/{rule['code']}")


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
    """Return what keys of a tool may hold: accelerate, deepspeed, launch, trainer."""
    if tool == "launch":
        return _launchers().keys
    return trainer_fields().keys if tool == "trainer" else known_keys(tool).keys


@cache
def ranges() -> Mapping[str, Mapping[str, Range]]:
    """Return between which numbers settings make sense, by kind of file and by tool."""
    return build(Ranges, read("configs", "ranges"), "configs/ranges").kinds


@cache
def multiples() -> tuple[Multiple, ...]:
    """Return which numbers of tools' files must divide which."""
    return build(Multiples, read("configs", "multiples"), "configs/multiples").multiple


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
