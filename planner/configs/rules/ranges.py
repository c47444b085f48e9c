"""Numbers that are out of the range in which a setting makes sense: `data/configs/ranges.toml`."""

import re
from collections.abc import Iterator
from math import prod

from planner.catalog.config_rules import TAKEN, Multiple, multiples, ranges
from planner.configs.found import ACCELERATE, LAUNCH, Found, Setup
from planner.configs.meaning import short, world
from planner.configs.rules.base import WARNING, Fault
from planner.domain.strategy import divisors

_SHOWN = 12
"""Divisors that are listed."""
_LARGEST = 10**9
"""Whose divisors are looked for."""


def number_is_out_of_range(setup: Setup) -> Iterator[Fault]:
    """A number is out of the range in which its setting makes sense."""
    for found in setup.found:
        seen: set[str] = set()
        of_kind, of_tool = (ranges().get(each, {}) for each in (found.kind, found.tool))
        for name, limits in {**of_kind, **of_tool}.items():
            setting = found.get(name)
            if setting is None or setting.number in limits.also or setting.key in seen:
                continue
            seen.add(setting.key)
            if setting.is_word and not re.fullmatch(limits.like, setting.text):
                example = found.defaults.get(name, limits.least or 1)
                hint = f"{limits.words}, such as {example}"
                kind = "too large" if setting.text.isdigit() else "no number"
                message = f"{setting.key} {short(setting.value)} is {kind}"
                yield Fault(at=setting, message=message, hint=hint)
            wrong = "" if setting.number is None else limits.wrong(setting.number)
            if wrong:
                is_taken = wrong.endswith(TAKEN)
                yield Fault(
                    at=setting,
                    message=f"{setting.key} {short(setting.value)} is {wrong}",
                    hint=limits.words,
                    level=WARNING if is_taken else None,
                )
    yield from _rank_is_beyond(setup)


def _rank_is_beyond(setup: Setup) -> Iterator[Fault]:
    """Yield a node's number that is none of the nodes'."""
    for found in setup.of(LAUNCH, ACCELERATE):
        rank, nodes = found.get("node_rank", "machine_rank"), found.whole("nnodes", "num_machines")
        if rank is not None and nodes and (rank.whole or 0) >= nodes:
            message = f"{rank.name} {rank.whole} of {nodes} nodes: they are counted from 0"
            yield Fault(at=rank, message=message, hint=f"0 to {nodes - 1}")


def numbers_do_not_go_together(setup: Setup) -> Iterator[Fault]:
    """Numbers of a file do not divide, or do not fill the GPUs, as its tool wants them to."""
    for found in setup.found:
        for each in multiples():
            if found.kind == each.of and not found.truth(each.unless):
                yield from _apart(setup, found, each)


def _apart(setup: Setup, found: Found, each: Multiple) -> Iterator[Fault]:
    whole = _factors(found, each.whole, each.optional)
    part = _factors(found, each.part, each.optional) if each.part else {"the GPUs": world(setup)}
    if not all(whole.values()) or not all(part.values()):
        return
    over = prod(found.whole(key) or 1 for key in each.over)
    number, by = (prod(count or 1 for count in of.values()) for of in (whole, part))
    if by % over:
        return
    by //= over
    is_right = {"multiple": number % by == 0, "least": number >= by, "equal": number == by}
    at = found.get(*each.whole)
    if at is not None and not is_right[each.relation]:
        what = {"multiple": "no multiple of", "least": "less than", "equal": "not"}[each.relation]
        hint = f"{_names(whole)} of {by}"
        if each.relation == "multiple" and len(part) == 1:
            right = [str(n) for n in divisors(number)[:_SHOWN]] if number <= _LARGEST else ["1"]
            hint = f"{_names(part)} of {', '.join(right)}"
        elif each.relation == "multiple":
            hint = f"{_names(whole)} of {number // by * by or by} or {(number // by + 1) * by}"
        yield Fault(
            at=at,
            message=f"{_words(whole, number)} is {what} {_words(part, by * over)}{_over(over, by)}",
            hint=hint,
        )


def _factors(
    found: Found, keys: tuple[str, ...], optional: tuple[str, ...]
) -> dict[str, int | None]:
    """Return what each of the keys holds: None where a needed one is not there, or only the run knows it."""
    said = {key: found.whole(key) for key in keys if found.get(key) or key not in optional}
    return said or {keys[0]: 1}


def _names(factors: dict[str, int | None]) -> str:
    return " x ".join(key.rpartition(".")[2] for key in factors)


def _over(over: int, by: int) -> str:
    return f" / {over} that share a batch = {by}" if over > 1 else ""


def _words(factors: dict[str, int | None], number: int) -> str:
    counts = " x ".join(map(str, factors.values()))
    return f"{_names(factors)} {counts}{f' = {number}' if len(factors) > 1 else ''}"
