"""Limits of a plan's memory, step, GPU-hours and cost: read as they are typed, held against its facts."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from planner.catalog.findings import finding_names
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.units import (
    GIB,
    GIGA,
    KIB,
    KILO,
    MEGA,
    MIB,
    MICRO,
    MILLI,
    format_bytes,
    format_percent,
)
from planner.gate.facts import Facts, one_line, shown

FITS, FINDING = "CHK001", "finding"
"""The code of what is judged of every plan; what a finding of a plan is called."""
GROWTH = 0.05
"""By how much an amount may exceed the baseline's where nothing else was said.

A judgement: less than the errors of an estimate, more than a change of a constant usually makes."""

_WHOLE = 100
"""Percent."""
_TYPED = re.compile(r"(\+?)([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Za-z%]*)")
_BYTES = {"b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "kb": KILO, "mb": MEGA, "gb": GIGA}
_SECONDS = {"us": MICRO, "ms": MILLI, "s": 1, "min": 60, "h": 3600}
_COUNT = {"": 1, "k": KILO, "m": MEGA}


@frozen
class Quantity:
    """What can be limited."""

    code: str
    flag: str
    path: str
    """Of its field."""
    units: Mapping[str, float]
    """In lower case, with what one is in base units."""
    example: str
    missing: str = ""
    """What to do where a plan does not have it."""

    @property
    def name(self) -> str:
        """Return the short name."""
        return finding_names("check")[self.code]


_RUN = "give the run's length in the request (recipe.training_tokens, or --tokens) and plan again"

QUANTITIES: Mapping[str, Quantity] = MappingProxyType(
    {
        each.flag: each
        for each in (
            Quantity(
                code="CHK002",
                flag="--max-memory",
                path="memory.reserved_bytes",
                units=_BYTES,
                example="70GiB, 90% of what a GPU has, or +5% over the baseline",
            ),
            Quantity(
                code="CHK003",
                flag="--max-step",
                path="time.step_seconds",
                units=_SECONDS,
                example="900ms, 1.5s, or +5% over the baseline",
            ),
            Quantity(
                code="CHK004",
                flag="--max-gpu-hours",
                path="training.gpu_hours",
                units=_COUNT,
                example="1200, 12k, or +5% over the baseline",
                missing=_RUN,
            ),
            Quantity(
                code="CHK005",
                flag="--max-cost",
                path="training.usd",
                units=_COUNT | {"usd": 1},
                example="500 (US dollars), or +5% over the baseline",
                missing=f"{_RUN}, on an instance whose price is known",
            ),
        )
    }
)
"""By the flag that limits it."""


@frozen
class Limit:
    """The most that a quantity may be: an amount, a share of the GPU, or a growth."""

    quantity: Quantity
    amount: float = 0.0
    """In base units, where it is neither of the other two."""
    share: float = 0.0
    """Of the memory that a GPU has."""
    growth: float | None = None
    """Over the baseline, as a fraction."""


@frozen
class Check:
    """One thing that was judged."""

    code: str
    name: str
    level: str
    """"pass", "warning" or "error"."""
    message: str
    hint: str = ""
    line: int = 1
    """Of the file, where that says more than its first."""
    file: str = ""
    """Where it is another than the one that was given."""


def read_limit(text: str, flag: str) -> Limit:
    """Return the limit that was typed for a flag.

    Raises:
        InvalidInputError: it is no amount of that quantity.
    """
    quantity = QUANTITIES[flag]
    plain = text.strip().removeprefix("$") if flag == "--max-cost" else text.strip()
    match = _TYPED.fullmatch(plain)
    if match:
        sign, number, unit = match[1], float(match[2]), match[3].lower()
        if sign and unit == "%":
            return Limit(quantity=quantity, growth=number / _WHOLE)
        if not sign and unit == "%" and flag == "--max-memory" and 0 < number <= _WHOLE:
            return Limit(quantity=quantity, share=number / _WHOLE)
        if not sign and unit in quantity.units and number > 0:
            return Limit(quantity=quantity, amount=number * quantity.units[unit])
    raise InvalidInputError(
        f"cannot read {one_line(text[:40])!r} as a limit",
        hint=f"such as {quantity.example}",
        field=flag,
    )


def read_growth(text: str) -> float | None:
    """Return the fraction by which anything may grow; None for any.

    Raises:
        InvalidInputError: it is none.
    """
    match = _TYPED.fullmatch(text.strip())
    if match and match[3] == "%":
        return float(match[2]) / _WHOLE
    if text.strip().lower() == "any":
        return None
    raise InvalidInputError(
        f"cannot read {one_line(text[:40])!r} as a growth",
        hint="such as 5%, or any",
        field="--max-growth",
    )


def judge(
    facts: Facts,
    limits: Sequence[Limit],
    baseline: Facts | None = None,
    growth: float | None = GROWTH,
) -> tuple[Check, ...]:
    """Return what is judged of a plan: that it fits, each limit, and its own warnings.

    With a baseline, a quantity that both have and that was given no limit may grow by `growth`; by any where that is None.

    Raises:
        InvalidInputError: a limit that was asked for cannot be judged.
    """
    checks = [_fits(facts)]
    checks += (_held(facts, limit, baseline) for limit in limits)
    if baseline is not None and growth is not None:
        limited = {limit.quantity.path for limit in limits}
        checks += (
            _held(facts, Limit(quantity=each, growth=growth), baseline)
            for each in QUANTITIES.values()
            if each.path not in limited and facts.amount(each.path) and baseline.amount(each.path)
        )
    return (*checks, *_warnings(facts))


def _fits(facts: Facts) -> Check:
    fits = facts.values["fits"] is True
    text = f"{facts.text('memory.reserved_bytes')} of {facts.text('memory.usable_bytes')} per GPU"
    needed = facts.amount("memory.reserved_bytes") or 0.0
    over = needed - (facts.amount("memory.usable_bytes") or 0.0)
    too_much = f", {format_bytes(over)} too much" if over > 0 else ", too much"
    return Check(
        code=FITS,
        name=finding_names("check")[FITS],
        level="pass" if fits else "error",
        message=text if fits else f"needs {text}{too_much}",
        hint="" if fits else "`planner memory` says what would fit",
    )


def _held(facts: Facts, limit: Limit, baseline: Facts | None) -> Check:
    quantity = limit.quantity
    amount = _amount(facts, quantity, "the plan")
    most, words = _most(facts, limit, baseline)
    is_over = amount > most
    over = f": {format_percent(amount / most - 1)} over" if is_over and most else ""
    return Check(
        code=quantity.code,
        name=quantity.name,
        level="error" if is_over else "pass",
        message=f"{shown(quantity.path, amount)}, at most {words}{over}",
    )


def _most(facts: Facts, limit: Limit, baseline: Facts | None) -> tuple[float, str]:
    """Return the most that is allowed, in base units and in words."""
    quantity = limit.quantity
    if limit.growth is not None:
        if baseline is None:
            raise InvalidInputError(
                "a growth needs something to grow from",
                hint="add --baseline FILE",
                field=quantity.flag,
            )
        most = _amount(baseline, quantity, "the baseline") * (1 + limit.growth)
        return (
            most,
            f"{shown(quantity.path, most)} (the baseline and {format_percent(limit.growth)})",
        )
    most, share = limit.amount, ""
    if limit.share:
        most = limit.share * (facts.amount("memory.usable_bytes") or 0.0)
        share = f", {format_percent(limit.share)} of what a GPU has"
    return most, f"{shown(quantity.path, most)} ({quantity.flag}{share})"


def _amount(facts: Facts, quantity: Quantity, whose: str) -> float:
    amount = facts.amount(quantity.path)
    if amount is None:
        raise InvalidInputError(
            f"{whose} says nothing of {quantity.name}, so {quantity.flag} cannot be judged",
            hint=quantity.missing,
            field=quantity.flag,
        )
    return amount


def _warnings(facts: Facts) -> list[Check]:
    levels = {"warning": "warning", "blocker": "error"}
    return [
        Check(code=each.code, name=FINDING, level=levels[each.severity], message=each.message)
        for each in facts.findings
        if each.severity in levels
    ]
