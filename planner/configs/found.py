"""Settings as they were read: each with the key, the value and the line it was typed with."""

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from planner.core.frozen import frozen
from planner.domain.cluster import Cluster, Gpu
from planner.domain.model import Model

DEEPSPEED, ACCELERATE, TRAINER, LAUNCH = "deepspeed", "accelerate", "trainer", "launch"
MEGATRON, TORCHTITAN = "megatron", "torchtitan"
ADAPTERS = "adapters"
"""PEFT's, and the quantisation of the frozen weights."""

READ = frozenset({DEEPSPEED, ACCELERATE, TRAINER, LAUNCH, MEGATRON, TORCHTITAN, ADAPTERS})
"""Whose files are read; others' are known."""

UNKNOWN = object()
"""The value of a setting that is only known when the script runs."""


@frozen
class Setting:
    """One key with its value."""

    key: str
    """With the keys around it: zero_optimization.stage."""
    value: Any
    """A scalar, a list, {} for a section, or UNKNOWN."""
    line: int
    file: str

    @property
    def name(self) -> str:
        """Return the key without those around it."""
        return self.key.rpartition(".")[2]

    @property
    def said(self) -> str:
        """Return the key with what it holds, as a message has it."""
        value = "" if isinstance(self.value, dict) or self.is_unread else str(self.value)
        return f"{self.key} {value.lower() if isinstance(self.value, bool) else value}".strip()[:80]

    @property
    def is_unread(self) -> bool:
        """Return whether only the run knows what it holds."""
        return self.value is UNKNOWN

    @property
    def is_word(self) -> bool:
        """Return whether it is a text that says something: no number, nothing, auto, or what is yet to be filled in."""
        is_text = isinstance(self.value, str) and self.number is None
        return is_text and not self.text.isupper() and self.text.strip().lower() not in _NOTHING

    @property
    def truth(self) -> bool | None:
        """Return whether it is on; None where that cannot be said."""
        if isinstance(self.value, bool):
            return self.value
        return _TRUTHS.get(str(self.value).lower())

    @property
    def number(self) -> float | None:
        """Return the number that it holds, as a number or as a text; None where it holds none."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float | str):
            return None
        try:
            number = float(self.value)
        except (ValueError, OverflowError):
            return None
        return number if abs(number) < _LARGEST else None

    @property
    def whole(self) -> int | None:
        """Return the whole number that it holds, or None."""
        number = self.number
        return int(number) if number is not None and number == int(number) else None

    @property
    def text(self) -> str:
        """Return the value as a text; "" of a section, a list or what is not known."""
        return str(self.value) if isinstance(self.value, str | int | float) else ""

    @property
    def is_auto(self) -> bool:
        """Return whether another tool is to fill it in."""
        return isinstance(self.value, str) and self.value == "auto"


_LARGEST = 1e15
_NOTHING = frozenset({"", "auto", "none", "null", "nil", "~"})
_TRUTHS = {"true": True, "yes": True, "1": True, "on": True} | dict.fromkeys(
    ("false", "no", "0", "off"), False
)


@frozen
class Found:
    """The settings that one file, or a part of it, gives one tool."""

    file: str
    kind: str
    settings: Mapping[str, Setting]
    """By their key, sections too; those of a tool with other words for ours by our key, too."""
    repeated: tuple[Setting, ...] = ()
    """Keys that stand twice: the earlier of the two."""
    is_whole: bool = True
    """Whether all settings were seen; else defaults cannot be told from what was hidden."""
    is_command: bool = False
    """Read from a command line."""
    tool: str = ""
    """Whose words they are: a record of `data/configs/tools`."""
    defaults: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """What counts where they say nothing, by our keys."""

    def get(self, *keys: str) -> Setting | None:
        """Return the first of these settings that is there."""
        return next((self.settings[key] for key in keys if key in self.settings), None)

    def truth(self, *keys: str) -> bool:
        """Return whether one of these is there, and on."""
        setting = self.get(*keys)
        return setting is not None and setting.truth is True

    def whole(self, *keys: str) -> int | None:
        """Return the whole number of the first of these; None where there is none."""
        setting = self.get(*keys)
        return None if setting is None else setting.whole

    def counting(self, key: str) -> Setting | None:
        """Return what counts of a key of ours: what is said, or the tool's default where all is seen; None for neither."""
        setting = self.settings.get(key)
        if setting is not None or not self.is_whole or key not in self.defaults:
            return setting
        return Setting(key=key, value=self.defaults[key], line=0, file=self.file)

    def section(self, prefix: str) -> Iterator[Setting]:
        """Yield the settings right inside a section; "" for the top."""
        for key, setting in self.settings.items():
            if key.rpartition(".")[0] == prefix and key == setting.key:
                yield setting

    def inside(self, prefix: str, kind: str) -> "Found":
        """Return the settings of a section as those of another tool."""
        start = f"{prefix}."
        settings = {
            key.removeprefix(start): replace(each, key=key.removeprefix(start))
            for key, each in self.settings.items()
            if key.startswith(start)
        }
        return Found(file=self.file, kind=kind, settings=settings)


@frozen
class Setup:
    """All files of one run together, and what is known of where it runs."""

    found: tuple[Found, ...]
    texts: Mapping[str, str] = field(default_factory=dict)
    """By file."""
    model: Model | None = None
    gpu: Gpu | None = None
    cluster: Cluster | None = None
    """As it was named; None where that does not say how many GPUs there are."""
    model_ranks: int | None = None
    """GPUs that share a copy of the model by the scripts beside the files; None where nothing says it."""

    def of(self, *kinds: str) -> tuple[Found, ...]:
        """Return what was found for these tools."""
        return tuple(each for each in self.found if each.kind in kinds)

    def settings(self, kind: str, *keys: str) -> Iterator[Setting]:
        """Yield the first of these settings in each of a tool's files."""
        for each in self.of(kind):
            setting = each.get(*keys)
            if setting is not None:
                yield setting
