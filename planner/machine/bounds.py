"""What a value of machine.json may be, where its type does not say it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Between:
    """A number in these bounds, both taken."""

    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class Few:
    """A list of at most so many."""

    most: int
