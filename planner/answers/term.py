"""A term as JSON: its name, its amount, and the arithmetic and source behind it."""

from typing import Any

from planner.core.term import Term


def term_answer(term: Term, unit: str) -> dict[str, Any]:
    """Return a term, with what it opens into; bytes are whole numbers, seconds are not."""
    amount = float(term.amount)
    answer = {
        "name": term.name,
        unit: round(amount) if unit == "bytes" else amount,
        "how": term.how,
        "source": term.source,
    }
    parts = [term_answer(part, unit) for part in term.parts if part.amount]
    return answer | {"parts": parts} if parts else answer
