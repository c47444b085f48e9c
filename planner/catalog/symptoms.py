"""What error messages mean: `data/symptoms` -> typed records, in the order they are looked for."""

from collections.abc import Mapping
from functools import cache
from typing import Literal

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen

_SUBJECTS = (
    *("releases", "amd", "memory", "network", "nccl", "cluster", "launcher", "device", "xid"),
    *("tensors", "sharding", "sizes", "data", "training", "post_training"),
)
"""Files, in the order of the list; a symptom with a context stands before the same message without."""


@frozen
class Worked:
    """A sentence that is worked out of what a message names: `planner.doctor.worked` fills it in."""

    pattern: str
    """Where it stands in the message; groups w, w1 .. are factors of a whole, p, p1 .. of what should divide it."""
    says: str


@frozen
class Symptom:
    """A message that people meet, what causes it, and what to do first."""

    code: str
    name: str
    title: str
    kind: Literal["cause", "consequence", "remark"]
    """consequence: another rank or line has the cause; remark: nothing failed."""
    match: tuple[tuple[str, ...], ...] = ()
    """Any of these; each is words that one line has, in any case."""
    near: tuple[str, ...] = ()
    """One of these is in the lines before, where the message alone does not tell."""
    beside: tuple[tuple[str, ...], ...] = ()
    """Of each of these one stands somewhere in the log, where several lines tell together."""
    is_of_all_ranks: bool = False
    """Whether every rank of the log says it, so that none is missing."""
    is_general: bool = False
    """Whether it only says that something failed: a cause that says what comes before it."""
    rules: tuple[str, ...] = ()
    """Of `planner check`, which find it before the run."""
    xid: tuple[int, ...] = ()
    """The numbers of NVIDIA's driver that mean it."""
    worked: tuple[Worked, ...] = ()
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
        return self.text_of(self.said)

    def text_of(self, message: str) -> str:
        """Return the documentation with a message as somebody met it: its numbers are its own."""
        check = f"Check: {', '.join(self.rules)}\n\n" if self.rules else ""
        return (
            f"{self.title}.\n\nMessage: {message}\n\nWhy: {self.cause}\n\nFirst: {self.first}\n\n"
            f"Confirm: {self.confirm}\n\n{check}See: {self.page}\n\nSource: {self.source}"
        )


@cache
def xid_names() -> Mapping[int, str]:
    """Return what each Xid is called."""
    return {int(number): name for number, name in read("symptoms", "xid")["names"].items()}


@cache
def successors() -> Mapping[str, Mapping[str, str]]:
    """Return what takes the place of a name, by what it was of: a class, or "" for any."""
    return dict(read("messages", "names")["successors"])


@cache
def owners() -> Mapping[str, str]:
    """Return what to do about a crash, by the library in which it was."""
    return dict(read("messages", "names")["libraries"])


@cache
def symptoms() -> tuple[Symptom, ...]:
    """Return all symptoms, subject by subject."""
    return tuple(
        build(Symptom, record, f"symptoms/{subject}")
        for subject in _SUBJECTS
        for record in read("symptoms", subject)["symptom"]
    )
