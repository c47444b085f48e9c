"""The moments of a training step at which memory may peak, and terms that depend on them."""

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

    @property
    def phases(self) -> tuple[Expression, ...]:
        """Return the expression of each phase."""
        return (
            self.forward,
            self.loss,
            self.last_block,
            self.first_block,
            self.outer,
            self.step,
        )

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
    return PhasedTerm(
        name=name,
        source=source,
        forward=held,
        loss=held,
        last_block=held,
        first_block=held,
        outer=held,
        step=held,
    )
