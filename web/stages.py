"""Memory of every pipeline stage -> one bar each on a common scale, and the table of its bytes.

Bars stay bars at any width: a row is HTML, only the bar in it is a picture (`web.chart`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from markupsafe import Markup

from planner.core.units import GIB, format_bytes
from planner.memory.ledger import Memory
from planner.memory.phases import PHASES
from web.chart import (
    NO_ROOM,
    ROOM_PERCENT,
    TermRow,
    letters,
    limit_line,
    memory_total,
    rows,
    segments,
    whisker,
)
from web.drawing import Scale, figures_across, picture, shape, text

_FEW = 8
"""Up to so many stages, bars are tall and say their terms in words; of more, the table does."""
_LETTERED = 4
"""Of many stages every such one says the letters of its terms, and the last: the others have the same below them."""
_ROOM_BESIDE_TEXT_PERCENT = (2.0, 5.0)
"""As `ROOM_PERCENT`, of a bar with text on both sides."""
_ROOM_IN_A_SLIM_BAR_PERCENT = (5.0, 5.0)
_MARGIN = 20
"""Height of what stands above and below the bars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBar:
    """The bar of one stage, with what stands beside it."""

    index: int
    bar: Markup
    reserved: str
    moment: str
    """Of the peak."""
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """The picture of every stage's memory, and its figures."""

    bars: tuple[StageBar, ...]
    above: Markup
    """What the dashed line means, over it."""
    axis: Markup
    legend: tuple[TermRow, ...]
    """Each term with its letter, and its range over the stages."""
    letters: Mapping[str, str]
    """By name of the term."""
    table: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    """Exact bytes: the name of a line, and each figure with as many neighbouring stages as share it."""

    @property
    def moments(self) -> tuple[tuple[str, int], ...]:
        """Return each moment of the peak, of as many neighbouring stages as share it."""
        return _runs(stage_bar.moment for stage_bar in self.bars)

    @property
    def too_large(self) -> tuple[int, ...]:
        """Return the stages that take more than the card offers."""
        return tuple(stage_bar.index for stage_bar in self.bars if not stage_bar.fits)


def draw_stages(memories: Sequence[Memory], *, card_bytes: float, usable_bytes: float) -> Stages:
    """Return the picture of the stages of one layout.

    Args:
        memories: one ledger per stage, in order.
        card_bytes: memory of a card.
        usable_bytes: what a process can take of it.
    """
    full = max(card_bytes, *(float(memory.high_bytes) for memory in memories))
    keys = letters(memory.terms for memory in memories)
    scale = Scale(most=full)
    return Stages(
        bars=tuple(
            _stage_bar(memory, keys, len(memories), full, usable_bytes) for memory in memories
        ),
        above=_above(usable_bytes, scale),
        axis=picture("axis", "", _MARGIN, *_axis(scale)),
        legend=_legend(memories, keys),
        letters=keys,
        table=_table(memories, keys),
    )


def _stage_bar(
    memory: Memory, keys: Mapping[str, str], num_stages: int, full: float, usable: float
) -> StageBar:
    total, index = memory_total(memory, full, usable), int(memory.stage)
    fits, is_one_of_few = total.amount <= usable, num_stages <= _FEW
    parts = rows(memory.terms, format_bytes, keys)
    reserved, low, high = map(format_bytes, (total.amount, total.low, total.high))
    label = f"stage {index}: " if num_stages > 1 else ""
    label += f"{reserved}, likely {low} to {high}"
    label += f", of {format_bytes(usable)} that a process can take" if is_one_of_few else ""
    label += "" if fits else " (does not fit)"
    if is_one_of_few:
        label += ": " + ", ".join(f"{part.name} {part.shown}" for part in parts)
    bar, strip, room = _proportions(index, num_stages)
    drawn = segments(parts, total.scale, room, has_titles=is_one_of_few)
    # The track of slim bars is their background: they are many.
    track = () if num_stages > _FEW else (shape("rect", css="track", width="100%"),)
    ranged = whisker(total, top=bar + 2, height=strip - 4, has_ends=is_one_of_few)
    return StageBar(
        index=index,
        bar=picture(
            "bar stage",
            label,
            bar + strip,
            shape("svg", *track, *drawn, height=bar),
            *limit_line(total, bar + strip),
            shape("g", *ranged, css="whisker"),
        ),
        reserved=reserved,
        moment=PHASES[int(memory.phase)],
        fits=fits,
    )


def _proportions(index: int, num_stages: int) -> tuple[int, int, tuple[float, float]]:
    """Return the heights of a bar and of the strip below it, and the room that a letter needs."""
    if num_stages == 1:
        return 44, 14, ROOM_PERCENT
    if num_stages <= _FEW:
        return 24, 12, _ROOM_BESIDE_TEXT_PERCENT
    is_lettered = index % _LETTERED == 0 or index == num_stages - 1
    return 16, 9, _ROOM_IN_A_SLIM_BAR_PERCENT if is_lettered else NO_ROOM


def _above(usable: float, scale: Scale) -> Markup:
    x = scale.percent(usable)
    side = "end" if usable > scale.most / 2 else "start"
    words = text(f"{format_bytes(usable)} usable", x, 8, f"limit {side}")
    return picture("axis", "", _MARGIN, words, shape("line", css="limit", x1=x, x2=x, y1=16, y2=20))


def _axis(scale: Scale) -> Iterator[Markup]:
    """Yield the scale in GiB: at most a handful of round figures from 0."""
    for tick in scale.ticks(GIB):
        x = scale.percent(tick * GIB)
        yield shape("line", x1=x, x2=x, y2=4)
    yield from figures_across(scale, GIB, "GiB", 12)


def _legend(memories: Sequence[Memory], keys: Mapping[str, str]) -> tuple[TermRow, ...]:
    """Return one row per letter; of several stages, from the least of the term to the most."""
    rows_by_letter: dict[str, list[TermRow]] = {letter: [] for letter in keys.values()}
    for memory in memories:
        for row in rows(memory.terms, format_bytes, keys):
            rows_by_letter[row.letter].append(row)
    return tuple(_over_stages(term_rows, len(memories)) for term_rows in rows_by_letter.values())


def _over_stages(term_rows: Sequence[TermRow], num_stages: int) -> TermRow:
    least, most = (pick(term_rows, key=lambda row: row.amount) for pick in (min, max))
    low = least.shown if len(term_rows) == num_stages else "0"
    return most if low == most.shown else replace(most, shown=f"{low} to {most.shown}")


def _table(
    memories: Sequence[Memory], keys: Mapping[str, str]
) -> tuple[tuple[str, tuple[tuple[str, int], ...]], ...]:
    terms = zip(*(memory.terms for memory in memories), strict=True)
    lines = [
        (term_of_stages[0].name.replace("_", " "), [term.amount for term in term_of_stages])
        for term_of_stages in terms
        if term_of_stages[0].name in keys
    ]
    lines += [
        (name, [getattr(memory, field) for memory in memories])
        for name, field in (
            ("allocated", "peak_bytes"),
            ("reserved", "reserved_bytes"),
            ("reserved, low", "low_bytes"),
            ("reserved, high", "high_bytes"),
        )
    ]
    return tuple(
        (name, _runs(f"{round(float(amount)):,}" for amount in amounts)) for name, amounts in lines
    )


def _runs(of_stages: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple((each, len(list(same))) for each, same in groupby(of_stages))
