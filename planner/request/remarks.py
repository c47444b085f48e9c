"""What the reader of an answer must be told of a request: what was taken, and what changes nothing."""

from dataclasses import field

from planner.core.frozen import frozen


@frozen
class Assumption:
    """Something the user did not say and the planner took; said first, with what changes it."""

    text: str
    field: str


@frozen
class Remarks:
    """What the reader of the answer must be told, in the order in which it was found."""

    assumptions: list[Assumption] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def assume(self, text: str, about: str) -> None:
        """Add what was taken of a field about which the request says nothing."""
        self.assumptions.append(Assumption(text=text, field=about))
