"""Logs with a line per step: `data/logs` says where its figures stand, and which other lines say the layout."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from planner.calibrate.logs.per_step import PerStep
from planner.calibrate.logs.steps import NUMBER, StepLog, Unit, count, number
from planner.catalog.records import read
from planner.core.frozen import frozen


@frozen
class Facts:
    """Where a log says its layout: a pattern of name and value, and which field each name is."""

    pattern: re.Pattern[str]
    fields: Mapping[str, tuple[str, Callable[[str], Any]]]
    """Path in a request (or world_size, data_ranks, or model. and a size), and how the value is read, by the log's name."""
    mark: str = ""
    """What a line holds that says them."""
    is_of_steps: bool = False
    """Whether they stand in the lines of steps, not around them."""

    def read(self, line: str, log: StepLog) -> None:
        """Take every field that a line says."""
        if self.mark not in line:
            return
        for match in self.pattern.finditer(line):
            known = self.fields.get(match["name"])
            if known is not None:
                path, read = known
                log.say(path, read(match["value"]), line)


@frozen
class LineFormat:
    """A framework's log: a line per step, facts of the layout, lines of memory."""

    name: str
    mark: str
    """What every step's line holds, and no other kind's."""
    step: re.Pattern[str]
    """Whose first group is the step's number."""
    value: re.Pattern[str]
    """Whose first group is the step's figure."""
    unit: Unit = "seconds"
    scale: float = 1.0
    said: Mapping[str, Any] = field(default_factory=dict)
    """What every run of this kind is, such as its framework."""
    facts: tuple[Facts, ...] = ()
    peak: re.Pattern[str] | None = None
    """Whose first group is the memory allocated at the most."""
    reserved: re.Pattern[str] | None = None
    memory_unit: float = 2.0**30
    besides: str = ""
    """What some line of a step holds besides, of a kind whose mark others have too."""
    per_step: Callable[[Sequence[str]], tuple[PerStep, ...]] | None = None
    """What lines of steps say that one trains on."""
    also: Callable[[Sequence[str], StepLog], None] | None = None
    """Takes what no pattern of a name and a value says."""

    def recognises(self, lines: Sequence[str]) -> bool:
        """Return whether some line is a step of this kind."""
        return any(self.mark in line and self.besides in line for line in lines)

    def read(self, lines: Sequence[str]) -> StepLog:
        """Return what the lines say."""
        log = StepLog(kind=self.name, unit=self.unit, said=dict(self.said))
        for line in lines:
            is_step = self.mark in line
            for facts in self.facts:
                if facts.is_of_steps == is_step:
                    facts.read(line, log)
            if is_step:
                self._read_step(line, log)
            self._read_memory(line, log)
        if self.per_step is not None:
            log.per_step = self.per_step([line for line in lines if self.mark in line])
        if self.also is not None:
            self.also(lines, log)
        return log

    def _read_step(self, line: str, log: StepLog) -> None:
        step, value = self.step.search(line), self.value.search(line)
        number_of_step = None if step is None else number(step[1], -1, 1e12)
        if value is None or number_of_step is None:
            log.damaged.append(line)
            return
        log.step(int(number_of_step), value[1], line, self.scale)

    def _read_memory(self, line: str, log: StepLog) -> None:
        for name, pattern in (("peak", self.peak), ("reserved", self.reserved)):
            match = None if pattern is None else pattern.search(line)
            if match is None:
                continue
            amount = number(match[1])
            log.memory(line, **{name: -1.0 if amount is None else amount * self.memory_unit})


_PATTERNS = ("step", "value", "peak", "reserved")


def line_format(
    name: str, readers: Mapping[str, Callable[[str], Any]] | None = None, **methods: Any
) -> LineFormat:
    """Return a format of `data/logs`.

    Args:
        name: of the record.
        readers: how values are read, by the log's name of them; others are whole numbers.
        methods: `per_step` and `also`, where the format has them.
    """
    record = {key: value for key, value in read("logs", name).items() if key != "source"}
    facts = tuple(
        Facts(
            **each
            | {
                "pattern": re.compile(each["pattern"]),
                "fields": {
                    said: (path, (readers or {}).get(said, count))
                    for said, path in each["fields"].items()
                },
            }
        )
        for each in record.pop("facts", ())
    )
    patterns = {key: pattern(record[key]) for key in _PATTERNS if key in record}
    return LineFormat(**record | patterns, facts=facts, **methods)


def pattern(text: str) -> re.Pattern[str]:
    """Return a pattern in which {number} stands for a number as logs write it."""
    return re.compile(text.replace("{number}", f"(?i:{NUMBER})"))
