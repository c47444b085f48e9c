"""A term as JSON: its name, its amount, and the arithmetic and source behind it."""

from typing import Any

from planner.core.term import Term


def term_answer(term: Term, unit: str) -> dict[str, Any]:
    """Return a term; bytes are whole numbers, seconds are not."""
    amount = float(term.amount)
    return {
        "name": term.name,
        unit: round(amount) if unit == "bytes" else amount,
        "how": term.how,
        "source": term.source,
    }
