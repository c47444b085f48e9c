"""What there is where nothing fits, as a table: what was tried, whether it fits, its step and its price."""

from collections.abc import Sequence

from planner.core.errors import WayOut
from planner.core.units import format_bytes, format_count, format_seconds
from planner.report.values import Heading, ReportRow, ReportTable

_FINE = 10
"""Below it a price has two decimals."""
_MILLION = 1_000_000


def ways_out_table(ways_out: Sequence[WayOut], *, has_flags: bool = True) -> ReportTable:
    """Return a row for the job as it was asked, and for each change that was tried.

    Args:
        ways_out: one at the least.
        has_flags: whether a change is said as the flag that asks for it, not in words.
    """
    tokens = next((each.tokens for each in ways_out if each.tokens), 0)
    return ReportTable(
        title="What was tried",
        note="memory of each GPU and of each node; the price is of as many tokens",
        headings=(
            Heading(name="change", is_key=True),
            Heading(name="fits"),
            Heading(name="memory", is_number=True),
            Heading(name="host", is_number=True),
            Heading(name="step", is_number=True),
            Heading(name="batch", is_number=True),
            Heading(name=_of_tokens(tokens), is_number=True),
        ),
        rows=tuple(ReportRow(cells=_cells(each, has_flags=has_flags)) for each in ways_out),
    )


def _of_tokens(tokens: int) -> str:
    if not tokens:
        return "price"
    return "1 M tokens" if tokens == _MILLION else f"{format_count(tokens)} tokens"


def _cells(way: WayOut, *, has_flags: bool) -> tuple[str, ...]:
    change = (has_flags and way.flag) or way.name
    memory = format_bytes(way.reserved_bytes) if way.reserved_bytes else ""
    if not way.fits:
        return (change, "no", memory, "", "", "", "")
    host = format_bytes(way.host_bytes) if way.host_bytes else ""
    step = format_seconds(way.step_seconds)
    return (change, "yes", memory, host, step, f"{way.sequences:,}", _price(way))


def _price(way: WayOut) -> str:
    amount = way.usd or way.gpu_hours
    rounded = f"{amount:,.{2 if amount < _FINE else 0}f}"
    return f"${rounded}" if way.usd else f"{rounded} GPU-hours"
