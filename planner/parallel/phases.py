"""The moments of a training step at which memory may peak, and amounts that depend on them."""

import numpy as np

from planner.core.term import Amount, Column, Term

PHASES = (
    "end of forward",
    "backward of the loss",
    "backward of the last block",
    "backward of the first block",
    "reduction of the outer gradients",
    "optimizer step",
)
_SHORT_NAMES = ("forward", "loss", "last_block", "first_block", "outer", "step")


def moments(*, like: Amount, **amounts: Amount) -> Column:
    """Stack one amount per phase, 0 where none is given: [phase] or [phase, layout].

    Args:
        like: an amount with the shape of the layouts.
        amounts: by the short names of `_SHORT_NAMES`.
    """
    parts = np.broadcast_arrays(like, *(amounts.get(name, 0.0) for name in _SHORT_NAMES))
    return np.stack([np.asarray(part, dtype=float) for part in parts[1:]])


def always(amount: Amount) -> Column:
    """Stack an amount that every phase holds."""
    return moments(like=amount, **dict.fromkeys(_SHORT_NAMES, amount))


def at_phase(term: Term, phase: Amount) -> Term:
    """Return a term as it stands in one phase, or in each layout's own."""
    amount = np.take_along_axis(term.amount, np.expand_dims(phase, 0), axis=0)[0]
    return Term(
        name=term.name,
        amount=amount if amount.ndim else amount.item(),
        formula=term.formula,
        numbers=term.numbers,
        source=term.source,
        spread=term.spread,
    )
