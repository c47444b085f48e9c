"""What an input of the form is, and the kinds of it that are made more than once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """One input of the form."""

    name: str
    label: str
    kind: str = "text"
    """`text`, `number`, `select` or `textarea`."""
    placeholder: str = ""
    """What an empty input means; of a select, the text of its empty option."""
    note: str = ""
    choices: Mapping[str, str] | None = None
    """Value to label: the options of a select, the suggestions of a text."""
    stands_for: str = ""
    """The value that holds where a select is left empty, which it does not list again."""
    is_required: bool = False
    columns: int = 4
    """Of the form's twelve, on a wide screen."""
    rows: int = 5
    """Of a text area."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fieldset:
    """Inputs that belong together."""

    legend: str
    controls: tuple[Control, ...]


def select(name: str, label: str, empty: str, choices: Iterable[str], columns: int = 4) -> Control:
    """Return a choice of names; the one that is said by leaving it empty is not listed again."""
    return Control(
        name=name,
        label=label,
        kind="select",
        placeholder=empty,
        choices=plain(choice for choice in choices if choice != empty),
        columns=columns,
        stands_for=empty,
    )


def number(name: str, label: str, empty: str = "any", note: str = "", columns: int = 3) -> Control:
    """Return a number."""
    return Control(
        name=name, label=label, kind="number", placeholder=empty, note=note, columns=columns
    )


def plain(names: Iterable[str]) -> dict[str, str]:
    """Return choices whose labels are their values."""
    return {name: name for name in names}
