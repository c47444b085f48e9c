"""What error messages mean: `data/symptoms` -> typed records, in the order they are looked for."""

from functools import cache
from typing import Literal

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen

_SUBJECTS = ("memory", "nccl", "launcher", "sharding", "training", "device")
"""Files, in the order of the list; a symptom with a context stands before the same message without."""


@frozen
class Symptom:
    """A message that people meet, what causes it, and what to do first."""

    code: str
    name: str
    title: str
    kind: Literal["cause", "consequence", "remark"]
    """consequence: another rank or line has the cause; remark: nothing failed."""
    match: tuple[tuple[str, ...], ...]
    """Any of these; each is words that one line has, in any case."""
    near: tuple[str, ...] = ()
    """One of these is in the lines before, where the message alone does not tell."""
    said: str
    """A message as it was printed."""
    after: str = ""
    """A line that stood before it, of those in `near`."""
    cause: str
    first: str
    """What to do first."""
    confirm: str
    """What shows whether that is it."""
    page: str
    """The entry of the glossary that says more."""
    source: str

    @property
    def text(self) -> str:
        """Return the documentation, as a rule has it."""
        return (
            f"{self.title}.\n\nMessage: {self.said}\n\nWhy: {self.cause}\n\nFirst: {self.first}\n\n"
            f"Confirm: {self.confirm}\n\nSee: {self.page}\n\nSource: {self.source}"
        )


@cache
def symptoms() -> tuple[Symptom, ...]:
    """Return all symptoms, subject by subject."""
    return tuple(
        build(Symptom, record, f"symptoms/{subject}")
        for subject in _SUBJECTS
        for record in read("symptoms", subject)["symptom"]
    )
