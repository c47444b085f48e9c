"""What a term of memory takes in each phase of one layout."""

from planner.memory.phases import PhasedTerm


def in_phases(term: PhasedTerm) -> list[float]:
    """Return the bytes of each phase, in the order of `PHASES`."""
    return [float(expression.value) for expression in term.phases]
