"""The moments of a training step at which memory may peak, and terms that depend on them."""

from collections.abc import Iterable

from planner.core.frozen import frozen
from planner.core.term import NOTHING, Column, Expression, Term, choose

PHASES = (
    "end of forward",
    "backward of the loss",
    "backward of the last block",
    "backward of the first block",
    "reduction of the outer gradients",
    "optimizer step",
)
BLOCKS = ("last_block", "first_block")
PASSES = ("forward", "loss", *BLOCKS)
"""The phases of a micro-batch, as the fields of a `PhasedTerm`; those in which its blocks run backward."""
_EVERY = (*PASSES, "outer", "step")


@frozen
class PhasedTerm:
    """A term of memory as it stands in each phase, in the order of `PHASES`."""

    name: str
    source: str
    forward: Expression = NOTHING
    loss: Expression = NOTHING
    last_block: Expression = NOTHING
    first_block: Expression = NOTHING
    outer: Expression = NOTHING
    step: Expression = NOTHING
    note: str = ""

    @classmethod
    def during(
        cls, phases: Iterable[str], held: Expression, *, name: str, source: str, note: str = ""
    ) -> "PhasedTerm":
        """Return a term that holds the same in each of some phases, and nothing in the others."""
        return cls(name=name, source=source, note=note, **dict.fromkeys(phases, held))

    @property
    def phases(self) -> tuple[Expression, ...]:
        """Return the expression of each phase."""
        return tuple(getattr(self, phase) for phase in _EVERY)

    def in_phase(self, phase: Column | int) -> Term:
        """Return the term as it stands in one phase, or in each layout's own."""
        return Term(
            name=self.name,
            arithmetic=choose(phase, self.phases),
            note=(self.note,) if self.note else (),
            source=self.source,
        )


def always(name: str, held: Expression, source: str) -> PhasedTerm:
    """Return a term that every phase holds alike."""
    return PhasedTerm.during(_EVERY, held, name=name, source=source)
