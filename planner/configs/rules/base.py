"""What a rule of configurations is, and what it finds."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from planner.configs.found import Setting, Setup
from planner.core.frozen import frozen

_ALONE = re.compile(r"[\w.+-]+")
Severity: TypeAlias = Literal["error", "warning"]
"""error: it does not run, or does not do what the file says; warning: it runs, and will hurt."""


@frozen
class Edit:
    """A change of one line that mends it."""

    setting: Setting
    action: Literal["set", "rename", "remove"]
    value: str = ""
    """As the file's own language writes it."""


@frozen
class Fault:
    """Something that is wrong, at a setting."""

    at: Setting
    message: str
    hint: str = ""
    edit: Edit | None = None
    level: Severity | None = None
    """Where it is not the rule's: what is wrong of some releases alone, or may be meant, is a warning."""

    @property
    def advice(self) -> str:
        """Return the hint as what to write: a value alone does not say where it goes."""
        if not _ALONE.fullmatch(self.hint):
            return self.hint
        is_value = self.edit is not None and self.edit.action == "set"
        return f"{self.at.name if is_value or self.hint.isdigit() else 'use'} {self.hint}"


ERROR: Severity = "error"
WARNING: Severity = "warning"


@dataclass(frozen=True, slots=True)
class Rule:
    """A coded rule."""

    code: str
    severity: Severity
    find: Callable[[Setup], Iterator[Fault]]
    name: str
    text: str
    """The documentation: a statement, then Why, Instead and Source."""


def set_to(setting: Setting, value: str) -> Edit:
    """Return the edit that gives a setting another value."""
    return Edit(setting=setting, action="set", value=value)


def renamed(setting: Setting, name: str) -> Edit:
    """Return the edit that gives a setting another name."""
    return Edit(setting=setting, action="rename", value=name)


def removed(setting: Setting) -> Edit:
    """Return the edit that takes a setting out."""
    return Edit(setting=setting, action="remove")


def on(setting: Setting) -> str:
    """Return true as a setting's file writes it."""
    return "True" if setting.file.endswith(".py") else "true"


def off(setting: Setting) -> str:
    """Return false as a setting's file writes it."""
    return "False" if setting.file.endswith(".py") else "false"
