"""Terms of a ledger -> bars.

Every segment carries the letter of its row in the table beside it: colour is never the only key. A term has the same
colour in every plan.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from markupsafe import Markup

from planner.core.term import Term
from planner.memory.ledger import Memory
from web.drawing import Scale, percent, picture, shape, text

_TALL, _SLIM, _RULER = 44, 16, 14
"""How high a bar is, and what is below it, in pixels."""
ROOM_PERCENT = (1.5, 3.5)
"""What a letter needs of the width on a wide and on a narrow screen, of a bar as wide as the page."""
NO_ROOM = (101.0, 101.0)

_COLOURED = {
    "a": ("parameters", "forward"),
    "b": ("gradients", "gradient_reduction"),
    "c": ("optimizer_states", "backward", "training"),
    "d": ("activations", "parameter_gather", "generation"),
    "e": ("logits_and_loss", "optimizer"),
    "f": ("communication_buffers", "overlap_slowdown"),
    "g": ("framework_and_context", "pipeline_bubble", "between"),
    "h": ("recomputed_block", "expert_parallel_exchange"),
    "i": ("autocast_weight_copies", "dequantised_weight", "context_parallel_exchange"),
    "j": ("tensor_parallel_buffers", "tensor_parallel_exchange", "paged_states", "weights"),
    "k": ("pipeline_buffers", "passing_gradients", "arriving_gradients", "pipeline_transfer"),
    "l": ("dummy_weight_gradients", "waiting_gradients", "loss_gradients", "activation_offload"),
    "o": ("reference_forward", "scoring"),
    "m": ("recomputed_gradients", "optimizer_temporaries", "input_gradients", "offload"),
    "n": ("stage_outputs", "gathered_keys_values", "frozen_block_inputs", "reference_weights"),
}
"""Terms by the colour of style.css that they have: those of one colour are of other ledgers, or of other moments."""
_OTHER = "l"
COLOURS = {name: colour for colour, names in _COLOURED.items() for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class TermRow:
    """One term: a segment of the bar, and the line of the table that explains it."""

    letter: str
    css: str
    name: str
    amount: float
    shown: str
    """The amount with its unit."""
    how: str
    source: str


def letters(ledgers: Iterable[Collection[Term]]) -> dict[str, str]:
    """Return the letter of every term, by name, that is not zero in one of the ledgers at least.

    Args:
        ledgers: of the same terms in the same order.
    """
    present = [
        same[0].name for same in zip(*ledgers, strict=True) if any(term.amount for term in same)
    ]
    return dict(zip(present, ascii_uppercase, strict=False))


def rows(
    terms: Collection[Term],
    show: Callable[[float], str],
    keys: Mapping[str, str] | None = None,
) -> tuple[TermRow, ...]:
    """Return one row per term that is not zero, each with its letter.

    Args:
        terms: of one ledger.
        show: an amount with its unit.
        keys: letters that the ledger shares with others; None for letters of its own.
    """
    keys = letters([terms]) if keys is None else keys
    return tuple(
        TermRow(
            letter=keys[term.name],
            css=f"part-{COLOURS.get(term.name, _OTHER)}",
            name=term.name.replace("_", " "),
            amount=float(term.amount),
            shown=show(float(term.amount)),
            how=term.how,
            source=term.source,
        )
        for term in terms
        if term.amount
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The sum of a ledger, and what it is drawn against."""

    amount: float
    low: float
    high: float
    """Its range."""
    full: float
    """The amount at the right edge."""
    limit: float | None = None
    """Where to draw a line that should not be crossed."""

    @property
    def scale(self) -> Scale:
        """Return where amounts lie."""
        return Scale(most=self.full)


def memory_total(memory: Memory, full: float, usable: float) -> Total:
    """Return what a ledger of memory has reserved.

    Args:
        memory: of one stage.
        full: bytes at the right edge: the card's, or more where a range goes beyond.
        usable: bytes that a process can take of the card.
    """
    reserved, low, high = memory.reserved_bytes, memory.low_bytes, memory.high_bytes
    return Total(amount=float(reserved), low=float(low), high=float(high), full=full, limit=usable)


def stacked_bar(parts: Sequence[TermRow], total: Total, *, is_slim: bool = False) -> Markup:
    """Return one segment per part, from left to right, on the scale; without letters where slim."""
    label = ", ".join(f"{part.name} {part.shown}" for part in parts)
    height, room = (_SLIM, NO_ROOM) if is_slim else (_TALL, ROOM_PERCENT)
    return picture("bar", label, height, *segments(parts, total.scale, room))


def meter(total: Total, label: str) -> Markup:
    """Return the total as one segment and, below it, its range."""
    whole = shape("rect", css="part-total", width=total.scale.percent(total.amount))
    bar = picture("bar", label, _SLIM, whole, *limit_line(total, _SLIM))
    return bar + picture("ruler", "", _RULER, *whisker(total, top=2, height=10))


def segments(
    parts: Sequence[TermRow], scale: Scale, room: tuple[float, float], *, has_titles: bool = True
) -> Iterator[Markup]:
    """Yield one segment per part, end to end from the left, as high as what they are drawn in.

    Args:
        parts: from left to right.
        scale: of the drawing.
        room: percent of the width that a letter needs on a wide and on a narrow screen.
        has_titles: False for one bar of many, whose segments the legend and the table alone explain.
    """
    start = 0.0
    for part in parts:
        x, width = scale.at(start), scale.at(part.amount)
        title = [shape("title", f"{part.letter}: {part.name} {part.shown}")] if has_titles else []
        yield shape("rect", *title, css=part.css, x=percent(x), width=percent(width))
        if width >= room[0]:
            css = "" if width >= room[1] else "only-wide"
            yield text(part.letter, percent(x + width / 2), "50%", css)
        start += part.amount


def whisker(total: Total, *, top: float, height: float, has_ends: bool = True) -> Iterator[Markup]:
    """Yield the range as a bracket, or a line without ends, with a dot at the amount."""
    low, at, high = map(total.scale.percent, (total.low, total.amount, total.high))
    middle = top + height / 2
    yield shape("line", x1=low, x2=high, y1=middle, y2=middle)
    for end in (low, high) if has_ends else ():
        yield shape("line", x1=end, x2=end, y1=top, y2=top + height)
    yield shape("circle", cx=at, cy=middle, r=min(3, height / 2))


def limit_line(total: Total, height: float) -> Iterator[Markup]:
    """Yield the line that should not be crossed, if there is one."""
    if total.limit is not None:
        x = total.scale.percent(total.limit)
        yield shape("line", css="limit", x1=x, x2=x, y2=height)
