"""A pipeline's timeline as inline SVG: a row per stage, forward and backward told by shade and letter."""

from markupsafe import Markup

from planner.core.units import format_seconds
from planner.parallel.schedule import Span, Timeline
from planner.parallel.schedule_orders import Kind

_ROW, _BAR = 22, 18
_ROOM_PERCENT = 1.6
"""What a number needs of the width."""
_SVG = Markup(
    '<svg class="timeline" role="img" aria-label="{label}" width="100%" height="{height}">'
    "{inside}</svg>"
)
_SPAN = Markup(
    '<g class="{css}"><title>{title}</title>'
    '<rect x="{x:.3f}%" y="{y}" width="{width:.3f}%" height="{height}"/>{text}</g>'
)
_TEXT = Markup('<text x="{x:.3f}%" y="{y}">{text}</text>')


def draw_timeline(start_of_step: Timeline) -> Markup:
    """Return the picture: time runs to the right, stages down."""
    stages = 1 + max(span.stage for span in start_of_step.spans)
    label = (
        f"{stages} pipeline stages over {format_seconds(start_of_step.seconds)}, idle for"
        f" {start_of_step.bubble_fraction:.0%} of it"
    )
    inside = Markup().join(_draw(span, start_of_step.seconds) for span in start_of_step.spans)
    return _SVG.format(label=label, height=stages * _ROW, inside=inside)


def _draw(span: Span, seconds: float) -> Markup:
    operation = span.operation
    x = 100 * span.start_seconds / seconds
    width = 100 * (span.end_seconds - span.start_seconds) / seconds
    y = span.stage * _ROW
    title = f"stage {span.stage}: {operation.kind} of micro-batch {operation.micro_batch}" + (
        f", chunk {operation.chunk}" if operation.chunk else ""
    )
    has_room = width >= _ROOM_PERCENT and operation.kind is not Kind.WEIGHT
    text = _TEXT.format(x=x + width / 2, y=y + 13, text=operation.micro_batch) if has_room else ""
    return _SPAN.format(
        css=operation.kind, title=title, x=x, y=y, width=width, height=_BAR, text=text
    )
