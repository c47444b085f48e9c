"""The table of what is looked for in a script, by code; and the looking."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from planner.catalog.findings import explained, functions, instead
from planner.core.documented import documentation, shown_name
from planner.core.frozen import frozen
from planner.doctor.scripts import (
    accelerate_rules,
    collective_rules,
    device_rules,
    loop_rules,
    optimizer_rules,
    process_rules,
    sharding_rules,
)
from planner.doctor.scripts.reading import Script, Spot, read_script

_ABOUT = "scripts"
Level = Literal["error", "warning", "advice"]
"""error: the result is wrong, or more GPUs bring nothing; warning: it costs; advice: small."""
_LEVELS: Mapping[str, Level] = {"error": "error", "warning": "warning", "advice": "advice"}


@dataclass(frozen=True, slots=True)
class ScriptRule:
    """A code, how bad it is, and the function that looks; its docstring is what `data/findings/scripts.toml` explains."""

    code: str
    level: Level
    look: Callable[[Script], Iterator[Spot]]

    @property
    def name(self) -> str:
        """Return what is found, in kebab case."""
        return shown_name(self.look)

    @property
    def text(self) -> str:
        """Return the statement and its Why, Instead and Source."""
        return explained(documentation(self.look), _ABOUT, self.code)

    @property
    def fix(self) -> str:
        """Return what to do instead, on one line."""
        return instead(_ABOUT, self.code)


_MODULES = (
    *(accelerate_rules, collective_rules, device_rules, loop_rules),
    *(optimizer_rules, process_rules, sharding_rules),
)
RULES: tuple[ScriptRule, ...] = tuple(
    ScriptRule(
        code, _LEVELS[level], next(getattr(each, name) for each in _MODULES if hasattr(each, name))
    )
    for code, (name, level) in functions(_ABOUT).items()
)


@frozen
class Fault:
    """One thing that is wrong with a script, and where."""

    code: str
    name: str
    level: Level
    file: str
    line: int
    also: tuple[int, ...]
    """Other lines that belong to it."""
    message: str
    fix: str


def look_at(content: bytes, file: str) -> tuple[Fault, ...]:
    """Return what is wrong with a script, line by line; nothing in it is run.

    Raises:
        InvalidInputError: it cannot be read as Python.
    """
    script = read_script(content, file)
    faults = [
        Fault(
            code=rule.code,
            name=rule.name,
            level=rule.level,
            file=file,
            line=spot.node.lineno,
            also=spot.also,
            message=spot.message,
            fix=spot.fix or rule.fix,
        )
        for rule in RULES
        for spot in rule.look(script)
    ]
    return tuple(sorted(faults, key=lambda fault: (fault.line, fault.code)))
