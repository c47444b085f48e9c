"""A message that no symptom is about -> the rule of `planner check` whose settings it names: one record has both."""

import re
from collections.abc import Iterator
from types import SimpleNamespace

from planner.catalog.config_rules import Case, Held, TabledRule, ranges, tabled_rules
from planner.catalog.symptoms import Symptom

_LONGEST = 2000
"""Characters of a message that are looked through."""
_MOST_NAMES = 60
"""Words of a line that refuses some settings; more is a list of all."""
_WORD = re.compile(r"[A-Za-z_][\w.-]{0,80}")
_REFUSES = re.compile(
    r"(?i)\b(?:must|should|need|require|only|cannot|can't|can not|not|invalid|refuse|without|either|both|mutually)"
)
_OF_RANGE = r"\b{name}\W+(?:\S+\W+){{0,2}}(?:must|should|has to|needs to) be\b[^.;]{{0,25}}(?:positive|negative|greater|bigger|at least|between|in \[|>)"
_OF_TOOL = re.compile(r"^[\w-]+ (?=refuses |knows no )")
_RANGES = "CFG088"


def refused(message: str) -> Symptom | None:
    """Return what `planner check` knows of the settings that a message names; None where no rule is about them."""
    message = message[:_LONGEST]
    words = {word.strip(".-").replace("-", "_") for word in _WORD.findall(message)}
    names = frozenset(word.rpartition(".")[2] for word in words)
    if len(names) > _MOST_NAMES or not _REFUSES.search(message):
        return None
    met = [(len(said), rule, case, said) for rule, case, said in _met(names, message)]
    if met:
        _, rule, case, _ = max(met, key=lambda each: each[0])
        return _as_symptom(rule, message, _told(case, names), case.hint)
    for of in ranges().values():
        for key, limits in of.items():
            name = key.rpartition(".")[2]
            if name in names and "_" in name and re.search(_OF_RANGE.format(name=name), message):
                rule = next(each for each in tabled_rules() if each.code == _RANGES)
                return _as_symptom(rule, message, "", f"{name}: {limits.words}")
    return None


def _met(names: frozenset[str], message: str) -> Iterator[tuple[TabledRule, Case, set[str]]]:
    """Yield the cases all of whose settings are named, two at least and none as the other's alternative."""
    for rule in tabled_rules():
        for case in rule.cases:
            groups = [_named(each, names) for each in (case.at, *_others(case))]
            said = {name for group in groups for name in group}
            is_sure = len(said) > 1 and any("_" in name for name in said)
            if len(groups) > 1 and all(groups) and is_sure and not _is_choice(groups, message):
                yield rule, case, said


def _others(case: Case) -> tuple[Held, ...]:
    return case.where or case.unless[:1]


def _named(held: Held, names: frozenset[str]) -> list[str]:
    """Return the settings of those that are looked for that a message names."""
    return [name for key in held.keys if (name := key.rpartition(".")[2]) in names]


def _is_choice(groups: list[list[str]], message: str) -> bool:
    """Return whether one is wanted or the other, which says nothing against the two together."""
    at, other = groups[0][0], groups[1][0]
    pairs = (rf"\b{a}\b\W+or\W+{b}\b" for a, b in ((at, other), (other, at)))
    return "only one" not in message and any(re.search(pair, message) for pair in pairs)


def _told(case: Case, names: frozenset[str]) -> str:
    """Return what the case says, with names in place of settings; the tool is the one that printed it."""
    at, *others = (
        SimpleNamespace(name=name, said=name, text="", whole="", file="", line="")
        for name in (_named(each, names)[0] for each in (case.at, *_others(case)))
    )
    try:
        told = case.message.format(*others, at=at, gpu=at, tool="tool")
    except IndexError:
        return f"{at.name} and {others[0].name} do not go together"
    return _OF_TOOL.sub("the tool ", " ".join(told.split()))


def _as_symptom(rule: TabledRule, message: str, told: str, hint: str) -> Symptom:
    statement, *rest = (" ".join(part.split()) for part in rule.text.split("\n\n"))
    said = dict(part.partition(": ")[::2] for part in rest)
    return Symptom(
        code=rule.code,
        name=rule.name,
        title=told[:1].upper() + told[1:] or statement.removesuffix("."),
        kind="cause",
        said=message,
        cause=said["Why"],
        first=hint if hint and "{" not in hint else said["Instead"],
        confirm=f"`planner check` on the file or the command finds it before a GPU is taken ({rule.code}).",
        page="trainer",
        source=said["Source"],
    )
