"""A pipeline's timeline: a row per stage, time to the right, in strokes.

Operations of a kind are one path, in whole steps of the width, and those that follow on each other one
stroke, so that a pipeline of 32 stages stays a small picture.
"""

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from planner.core.units import format_fraction, format_seconds
from planner.parallel.schedule import Span, Timeline
from planner.parallel.schedule_orders import Kind
from web.drawing import (
    BAR,
    ROW,
    Scale,
    figures_across,
    row_middle,
    rows_picture,
    shape,
    stretched,
    text,
)

_STEPS = 2000
"""Of the width."""
_FROM_BENEATH = (Kind.BACKWARD, Kind.FORWARD, Kind.WEIGHT)
_ROOM_PERCENT = 2.4
"""What a number needs of the rows' width."""
_LABELS_PERCENT = 6
"""What the names of the stages take of the width."""
_MOST_SECONDS = 10
"""A longer pipeline has its axis in seconds."""


def draw_timeline(start_of_step: Timeline) -> Markup:
    """Return the picture: time runs to the right, stages down."""
    seconds, spans = start_of_step.seconds, start_of_step.spans
    stages = 1 + max(span.stage for span in spans)
    label = (
        f"{stages} pipeline stages over {format_seconds(seconds)}, idle for"
        f" {format_fraction(start_of_step.bubble_fraction)} of it"
    )
    scale = Scale(most=seconds, start=_LABELS_PERCENT)
    unit, name = (1e-3, "ms") if seconds <= _MOST_SECONDS else (1.0, "s")
    return rows_picture(
        "timeline",
        label,
        [str(stage) for stage in range(stages)],
        stretched(
            _LABELS_PERCENT,
            stages * ROW,
            (_STEPS, stages * ROW),
            *(path for kind in _FROM_BENEATH for path in _path(kind, spans, seconds)),
        ),
        *_numbers(spans, scale),
        *figures_across(scale, unit, name, stages * ROW + 10),
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


def _path(kind: Kind, spans: Sequence[Span], seconds: float) -> Iterator[Markup]:
    """Yield a kind's operations, each from where the one before it in its row ended.

    Backward lies beneath the others and is drawn as whatever is busy: there is nothing else left.
    """
    is_beneath = kind is Kind.BACKWARD
    strokes: list[str] = []
    row, end = -1, 0
    for stage, start, stop in _runs(
        [span for span in spans if is_beneath or span.operation.kind is kind], seconds
    ):
        move = f"m{start - end} 0" if stage == row else f"M{start} {row_middle(stage)}"
        row, end = stage, stop
        strokes.append(f"{move}h{stop - start}")
    if strokes:
        yield shape("path", css=kind, stroke_width=BAR, d="".join(strokes))


def _runs(spans: Sequence[Span], seconds: float) -> Iterator[tuple[int, int, int]]:
    """Yield stage, start and end in steps of what follows on each other without a gap."""
    steps = Scale(most=seconds, end=_STEPS)
    stage, start, end = -1, 0, 0
    for span in sorted(spans, key=lambda span: (span.stage, span.start_seconds)):
        begins, ends = round(steps.at(span.start_seconds)), round(steps.at(span.end_seconds))
        if (span.stage, begins) != (stage, end):
            if end > start:
                yield stage, start, end
            stage, start = span.stage, begins
        end = ends
    if end > start:
        yield stage, start, end


def _numbers(spans: Sequence[Span], scale: Scale) -> Iterator[Markup]:
    for span in spans:
        length = 100 * (span.end_seconds - span.start_seconds) / scale.most
        if length >= _ROOM_PERCENT and span.operation.kind is not Kind.WEIGHT:
            middle = scale.percent((span.start_seconds + span.end_seconds) / 2)
            yield text(span.operation.micro_batch, middle, row_middle(span.stage))
