"""What the fields of a request are called at each door: `data/request/fields.toml`, typed."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from planner.catalog.records import read
from planner.core.frozen import frozen


@frozen
class Words:
    """What a field is called at a terminal, in the form and in REST's description; "" for nowhere."""

    flag: str = ""
    """With the word that stands for its value: "--seq-len N"."""
    help: str = ""
    metavar: str = ""
    """The word that --help shows for the value, where the type alone says less."""
    reads: str = ""
    """Which amount a value is read as, with its unit: see `planner.request.amounts`."""
    usual: Literal["", "always", "one layout"] = ""
    """Whether --help shows it unasked: of every command with a job, or of those that look at one layout."""
    about: str = ""
    label: str = ""
    empty: str = ""
    note: str = ""
    pasted: str = ""
    """What may be pasted in place of a name."""
    kind: str = ""
    choices: str | list[str] | Mapping[str, str] = ""
    unsaid: str = ""
    columns: int = 0
    """Of the form's twelve, where they are not those of its fieldset."""

    @property
    def description(self) -> str:
        """Return what the field is, and what holds without it."""
        what = self.about or self.help
        return f"{what} Left out: {self.empty}." if self.empty else what


@frozen
class FieldsetWords:
    """Inputs of the form that belong together."""

    legend: str
    inputs: list[str]
    """Names, in reading order."""
    columns: int = 4
    """Of an input, on a wide screen."""
    is_folded: bool = False


_FORM = "fieldset"


@cache
def words() -> Mapping[str, Words]:
    """Return the words of each field by its dotted path, in the order of --help."""
    return {path: Words(**said) for path, said in _record().items() if path != _FORM}


@cache
def fieldsets() -> tuple[FieldsetWords, ...]:
    """Return the fieldsets of the form, in reading order."""
    return tuple(FieldsetWords(**each) for each in _record()[_FORM])


def _record() -> dict[str, Any]:
    return read("request", "fields")
