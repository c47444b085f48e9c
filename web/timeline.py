"""A pipeline's timeline as inline SVG: a row per stage, time to the right, in strokes.

Operations of a kind are one path, in whole steps of the width, and those that follow on each other one
stroke, so that a pipeline of 32 stages stays a small picture.
"""

from collections.abc import Iterable, Iterator, Sequence

from markupsafe import Markup

from planner.core.units import format_fraction, format_seconds
from planner.parallel.schedule import Span, Timeline
from planner.parallel.schedule_orders import Kind
from web.ticks import round_ticks

_ROW, _BAR = 22, 18
_STEPS = 2000
"""Of the width."""
_FROM_BENEATH = (Kind.BACKWARD, Kind.FORWARD, Kind.WEIGHT)
_ROOM_PERCENT = 2.4
"""What a number needs of the width."""
_LABELS_PERCENT = 6
"""What the names of the stages take of the width."""
_EDGE_PERCENT = 92
"""From here on a tick's text ends at its tick, or it would leave the drawing."""
_MOST_MS = 10_000
"""A longer pipeline has its axis in seconds."""

_SVG = Markup(
    '<svg class="timeline" role="img" aria-label="{label}" width="100%" height="{height}">'
    '{names}<svg x="{left}%" width="{width}%" height="{rows}" viewBox="0 0 {steps} {rows}"'
    ' preserveAspectRatio="none">{paths}</svg>'
    '<svg class="over" x="{left}%" width="{width}%" height="{height}">{numbers}{axis}</svg></svg>'
)
_NAME = Markup('<text class="stage" x="0" y="{y}">{stage}</text>')
_PATH = Markup('<path class="{css}" stroke-width="{height}" d="{strokes}"/>')
_NUMBER = Markup('<text x="{x:.1f}%" y="{y}" text-anchor="middle">{text}</text>')
_TICK = Markup('<text class="tick" x="{x:.1f}%" y="{y}" text-anchor="{anchor}">{text}</text>')


def draw_timeline(start_of_step: Timeline) -> Markup:
    """Return the picture: time runs to the right, stages down."""
    seconds, spans = start_of_step.seconds, start_of_step.spans
    stages = 1 + max(span.stage for span in spans)
    label = (
        f"{stages} pipeline stages over {format_seconds(seconds)}, idle for"
        f" {format_fraction(start_of_step.bubble_fraction)} of it"
    )
    rows = stages * _ROW
    return _SVG.format(
        label=label,
        height=rows + _ROW,
        rows=rows,
        left=_LABELS_PERCENT,
        width=100 - _LABELS_PERCENT,
        steps=_STEPS,
        names=Markup().join(_NAME.format(stage=s, y=s * _ROW + 13) for s in range(stages)),
        paths=Markup().join(_path(kind, spans, seconds) for kind in _FROM_BENEATH),
        numbers=Markup().join(_numbers(spans, seconds)),
        axis=Markup().join(_axis(seconds, rows)),
    )


def in_words(start_of_step: Timeline, micro_batches: int) -> str:
    """Return what the picture shows, and how much of its time nothing is done in.

    Args:
        start_of_step: what is drawn.
        micro_batches: of the whole step.
    """
    operations = [span.operation for span in start_of_step.spans]
    shown = 1 + max(operation.micro_batch for operation in operations)
    is_put_off = any(operation.kind is Kind.WEIGHT for operation in operations)
    put_off = " yellow: weight gradients that were put off," if is_put_off else ""
    idle = format_fraction(start_of_step.bubble_fraction)
    share = f"leave stages idle for {idle} of this time"
    many = f"The first {shown} of {micro_batches:,} micro-batches {share}; over all of them it is less."
    every = f"All {shown} micro-batches {share}; exchanges of gradients and the optimizer follow."
    return (
        f"A row per pipeline stage, time to the right. Blue: forward, orange: backward,{put_off} blank:"
        " idle. At the left the pipeline fills, at the right it drains."
        f" {every if shown == micro_batches else many}"
    )


def _path(kind: Kind, spans: Sequence[Span], seconds: float) -> Markup:
    """Return a kind's operations, each from where the one before it in its row ended.

    Backward lies beneath the others and is drawn as whatever is busy: there is nothing else left.
    """
    is_beneath = kind is Kind.BACKWARD
    strokes: list[str] = []
    row, end = -1, 0
    for stage, start, stop in _runs(
        [span for span in spans if is_beneath or span.operation.kind is kind], seconds
    ):
        move = f"m{start - end} 0" if stage == row else f"M{start} {stage * _ROW + _BAR // 2}"
        row, end = stage, stop
        strokes.append(f"{move}h{stop - start}")
    return _PATH.format(css=kind, height=_BAR, strokes="".join(strokes)) if strokes else Markup()


def _runs(spans: Sequence[Span], seconds: float) -> Iterator[tuple[int, int, int]]:
    """Yield stage, start and end in steps of what follows on each other without a gap."""
    stage, start, end = -1, 0, 0
    for span in sorted(spans, key=lambda span: (span.stage, span.start_seconds)):
        begins, ends = _step(span.start_seconds, seconds), _step(span.end_seconds, seconds)
        if (span.stage, begins) != (stage, end):
            if end > start:
                yield stage, start, end
            stage, start = span.stage, begins
        end = ends
    if end > start:
        yield stage, start, end


def _step(at_seconds: float, seconds: float) -> int:
    return round(_STEPS * at_seconds / seconds)


def _numbers(spans: Sequence[Span], seconds: float) -> Iterable[Markup]:
    for span in spans:
        length = 100 * (span.end_seconds - span.start_seconds) / seconds
        if length >= _ROOM_PERCENT and span.operation.kind is not Kind.WEIGHT:
            yield _NUMBER.format(
                x=100 * span.start_seconds / seconds + length / 2,
                y=span.stage * _ROW + 13,
                text=span.operation.micro_batch,
            )


def _axis(seconds: float, rows: int) -> Iterable[Markup]:
    """Return the scale: round figures from 0 in ms, or in s where they would be long."""
    per_second, unit = (1000, "ms") if 1000 * seconds <= _MOST_MS else (1, "s")
    ticks = round_ticks(0, per_second * seconds)
    for tick in ticks:
        x = 100 * tick / (per_second * seconds)
        anchor = "start" if not tick else "end" if x > _EDGE_PERCENT else "middle"
        text = f"{tick:,g} {unit}" if tick == ticks[-1] else f"{tick:,g}"
        yield _TICK.format(x=x, y=rows + 14, anchor=anchor, text=text)
