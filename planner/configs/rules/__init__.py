"""What is wrong with a configuration, as coded rules; each says in whose code it was read."""

from collections.abc import Callable, Iterator
from functools import partial

from planner.catalog.config_rules import TabledRule, tabled_rules
from planner.configs.found import Setup
from planner.configs.rules import (
    batch,
    engines,
    keys,
    launch,
    ranges,
    shape,
)
from planner.configs.rules.base import ERROR, WARNING, Edit, Fault, Rule
from planner.configs.rules.tabled import faults_of

__all__ = ["ERROR", "RULES", "WARNING", "Edit", "Fault", "Rule", "faults"]


_MODULES = (batch, engines, keys, launch, ranges, shape)


def _find(record: TabledRule) -> Callable[[Setup], Iterator[Fault]]:
    """Return what looks for a rule: its cases, or the function that has its name."""
    name = record.name.replace("-", "_")
    written = next((getattr(each, name) for each in _MODULES if hasattr(each, name)), None)
    return written or partial(faults_of, record)


RULES: tuple[Rule, ...] = tuple(
    Rule(each.code, each.severity, _find(each), each.name, each.text) for each in tabled_rules()
)


def faults(setup: Setup) -> tuple[tuple[Rule, Fault], ...]:
    """Return everything that is wrong, by file and line."""
    found = [(rule, fault) for rule in RULES for fault in rule.find(setup)]
    order = {file: number for number, file in enumerate(setup.texts)}
    return tuple(
        sorted(
            found, key=lambda each: (order.get(each[1].at.file, 0), each[1].at.line, each[0].code)
        )
    )
