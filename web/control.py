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
    is_required: bool = False
    columns: int = 4
    """Of the form's twelve, on a wide screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fieldset:
    """Inputs that belong together."""

    legend: str
    controls: tuple[Control, ...]


def select(name: str, label: str, empty: str, choices: Iterable[str], columns: int = 4) -> Control:
    """Return a choice of names."""
    return Control(
        name=name,
        label=label,
        kind="select",
        placeholder=empty,
        choices=plain(choices),
        columns=columns,
    )


def switch(
    name: str, label: str, empty: str = "as the framework has it", columns: int = 4
) -> Control:
    """Return a choice of yes and no."""
    return Control(
        name=name,
        label=label,
        kind="select",
        placeholder=empty,
        choices={"true": "yes", "false": "no"},
        columns=columns,
    )


def number(name: str, label: str, empty: str = "any", note: str = "", columns: int = 3) -> Control:
    """Return a number."""
    return Control(
        name=name, label=label, kind="number", placeholder=empty, note=note, columns=columns
    )


def plain(names: Iterable[str]) -> dict[str, str]:
    """Return choices whose labels are their values."""
    return {name: name for name in names}
