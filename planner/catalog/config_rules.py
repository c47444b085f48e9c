"""What is held against other tools' configurations: rules, ranges and multiples of `data/configs`, typed."""

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
    like: str = ""
    """A regular expression of the texts that are taken, too."""

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
def ranges() -> Mapping[str, Mapping[str, Range]]:
    """Return between which numbers settings make sense, by kind of file and by tool."""
    return build(Ranges, read("configs", "ranges"), "configs/ranges").kinds


@cache
def multiples() -> tuple[Multiple, ...]:
    """Return which numbers of tools' files must divide which."""
    return build(Multiples, read("configs", "multiples"), "configs/multiples").multiple
