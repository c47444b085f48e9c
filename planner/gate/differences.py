"""Two plans -> what a reader would see change: fields, files that can be written, assumptions, findings."""

from collections.abc import Iterable

from planner.core.frozen import frozen
from planner.core.units import format_percent
from planner.gate.facts import FIELDS, FROM_TABLE, NONE, Facts, Value, shown


@frozen
class Change:
    """One thing that is not the same."""

    field: str
    label: str
    before: Value | None
    after: Value | None
    before_text: str = NONE
    after_text: str = NONE

    @property
    def growth(self) -> float | None:
        """Return by what fraction an amount has grown; None of what is no amount, such as a size."""
        amounts = [
            value
            for value in (self.before, self.after)
            if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        is_amount = not self.field.startswith("strategy.")
        if not is_amount or len(amounts) < len((self.before, self.after)) or not amounts[0]:
            return None
        return amounts[1] / amounts[0] - 1

    @property
    def growth_text(self) -> str:
        """Return the growth with its sign, or ""."""
        growth = self.growth
        if growth is None:
            return ""
        return f"{'+' if growth > 0 else '-'}{format_percent(abs(growth))}"


def differences(before: Facts, after: Facts) -> tuple[Change, ...]:
    """Return what is not the same, as far as a reader is shown it: three digits of an amount."""
    changes = [
        _change(each.path, each.label, before.values.get(each.path), after.values.get(each.path))
        for each in FIELDS
        if before.text(each.path) != after.text(each.path)
        and (each.path not in FROM_TABLE or each.path in before.values.keys() & after.values.keys())
    ]
    texts = (
        ("launch.targets", "files for", before.targets, after.targets),
        ("assumptions", "assumed", before.assumptions, after.assumptions),
        ("findings", "finding", _notes(before), _notes(after)),
    )
    for path, label, one, other in texts:
        changes += (_change(path, label, each, None) for each in one if each not in other)
        changes += (_change(path, label, None, each) for each in other if each not in one)
    return tuple(changes)


def _notes(facts: Facts) -> Iterable[str]:
    """Return the findings by code: their words have the amounts in, which are compared already."""
    return list(dict.fromkeys(each.code for each in facts.findings))


def _change(path: str, label: str, before: Value | None, after: Value | None) -> Change:
    return Change(
        field=path,
        label=label,
        before=before,
        after=after,
        before_text=NONE if before is None else shown(path, before),
        after_text=NONE if after is None else shown(path, after),
    )
