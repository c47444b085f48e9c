"""The frontiers of a sweep -> a table and a plot of each, for a terminal."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import log10
from string import ascii_letters
from types import MappingProxyType

from planner.core.errors import (
    HubUnreachableError,
    ModelAccessError,
    ModelNotFoundError,
    NothingFitsError,
    TookTooLongError,
    UnknownNameError,
    UnsupportedError,
)
from planner.core.units import format_bytes, format_count
from planner.report.values import Heading, ReportRow, ReportTable, Terminal, table_text
from planner.sweep.frontier import (
    Frontier,
    Outcome,
    Point,
    clusters_for_models,
    models_for_clusters,
)

_MOST_TABLES = 6
"""Of each question; the file has all."""
_MOST_ROWS = 12
_MOST_NAMES, _LONGEST_NAME = 10, 100
_FEWEST_DRAWN = 3
_PLOT_ROWS = 10
_PLOT_COLUMNS = 60
_REFUSALS: Mapping[str, str] = MappingProxyType(
    {
        HubUnreachableError.__name__: "the Hub gave no answer",
        ModelAccessError.__name__: "the model is not open to all",
        ModelNotFoundError.__name__: "no such model",
        NothingFitsError.__name__: "nothing fits",
        TookTooLongError.__name__: "it took too long",
        UnknownNameError.__name__: "a name is not known",
        UnsupportedError.__name__: "not estimated yet",
    }
)
"""What errors are called; of all others, that the request cannot be read."""


def outcome_text(found: Outcome, terminal: Terminal) -> str:
    """Return which cluster suits each model, and which model each cluster."""
    lines = [f"{plans(len(found.points))}{_refused(found)}"]
    clusters, models = clusters_for_models(found), models_for_clusters(found)
    lines += [_clusters_text(frontier, terminal) for frontier in clusters[:_MOST_TABLES]]
    lines += [_models_text(frontier, terminal) for frontier in models[:_MOST_TABLES]]
    left = sum(max(0, len(each) - _MOST_TABLES) for each in (clusters, models))
    lines += [f"{left:,} more models and clusters are in the file"] if left else []
    return "\n\n".join(lines) + "\n"


def _refused(found: Outcome) -> str:
    reasons: Counter[str] = Counter()
    for kind, count in found.refused.items():
        reasons[_REFUSALS.get(kind, "the request cannot be read")] += count
    told = (f"{count:,} ({why})" for why, count in sorted(reasons.items()))
    return f"; no plan: {', '.join(told)}{_unresolved(found)}" if reasons else ""


def _unresolved(found: Outcome) -> str:
    names = [repr(name)[:_LONGEST_NAME] for name in found.unresolved]
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return f"\nnot resolved: {', '.join(names[:_MOST_NAMES])}{more}" if names else ""


def plans(count: int) -> str:
    """Return so many plans, in words."""
    return f"{count:,} plan{'' if count == 1 else 's'}"


def _clusters_text(frontier: Frontier, terminal: Terminal) -> str:
    shown = _shown(frontier)
    is_priced = any(point.usd_per_hour for _, point in shown)
    prices = (Heading(name="price", is_number=True),) if is_priced else ()
    headings = (
        Heading(name=""),
        Heading(name="cluster", is_key=True),
        Heading(name="GPUs", is_number=True),
        *prices,
        Heading(name="strategy"),
        Heading(name="batch", is_number=True, is_detail=True),
        Heading(name="memory", is_number=True, is_detail=True),
        Heading(name="tokens/s", is_number=True),
    )
    rows = tuple(
        ReportRow(
            cells=(
                mark,
                point.cluster,
                f"{point.gpus:,}",
                *_price(point)[: len(prices)],
                *_figures(point),
            )
        )
        for mark, point in shown
    )
    price = "dollars per hour" if frontier.is_priced else "GPUs"
    table = ReportTable(
        title=f"Which cluster for {frontier.of}",
        note=_note(frontier, f"tokens/s and {price}"),
        headings=headings,
        rows=rows,
    )
    across: Callable[[Point], float] = _usd if frontier.is_priced else _gpus
    return f"{table_text(table, terminal)}{_plot(shown, across, price)}"


def _models_text(frontier: Frontier, terminal: Terminal) -> str:
    shown = _shown(frontier)
    headings = (
        Heading(name=""),
        Heading(name="model", is_key=True),
        Heading(name="parameters", is_number=True),
        Heading(name="strategy"),
        Heading(name="batch", is_number=True, is_detail=True),
        Heading(name="memory", is_number=True, is_detail=True),
        Heading(name="tokens/s", is_number=True),
    )
    rows = tuple(
        ReportRow(cells=(mark, point.model, format_count(point.parameters), *_figures(point)))
        for mark, point in shown
    )
    table = ReportTable(
        title=f"Which model fits {frontier.of}",
        note=_note(frontier, "parameters and tokens/s"),
        headings=headings,
        rows=rows,
    )
    return f"{table_text(table, terminal)}{_plot(shown, _parameters, 'parameters')}"


def _shown(frontier: Frontier) -> list[tuple[str, Point]]:
    return list(zip(ascii_letters, frontier.points[:_MOST_ROWS], strict=False))


def _note(frontier: Frontier, amounts: str) -> str:
    more = len(frontier.points) - _MOST_ROWS
    left = f", {more:,} more in the file" if more > 0 else ""
    if frontier.out_of == 1:
        return "the only plan"
    return f"of {plans(frontier.out_of)}, those that none beats in {amounts}{left}"


def _figures(point: Point) -> tuple[str, ...]:
    return (
        point.family,
        f"{point.global_batch_size:,}",
        format_bytes(point.reserved_bytes),
        format_count(point.tokens_per_second),
    )


def _price(point: Point) -> tuple[str]:
    return (f"{point.usd_per_hour:,.2f} $/h" if point.usd_per_hour else "unknown",)


def _usd(point: Point) -> float:
    return point.usd_per_hour or 0.0


def _gpus(point: Point) -> float:
    return point.gpus


def _parameters(point: Point) -> float:
    return point.parameters


def _plot(shown: Sequence[tuple[str, Point]], across: Callable[[Point], float], name: str) -> str:
    """Return the points by their letters, both axes in powers; of two there is nothing to draw."""
    if len(shown) < _FEWEST_DRAWN:
        return ""
    columns = _places([across(point) for _, point in shown], _PLOT_COLUMNS)
    rows = _places([point.tokens_per_second for _, point in shown], _PLOT_ROWS)
    grid = [[" "] * _PLOT_COLUMNS for _ in range(_PLOT_ROWS)]
    for (mark, _), column, row in zip(shown, columns, rows, strict=True):
        grid[_PLOT_ROWS - 1 - row][column] = mark
    fastest = max(point.tokens_per_second for _, point in shown)
    body = ["  | " + "".join(line).rstrip() for line in grid]
    most, least = (format_count(pick(across(point) for _, point in shown)) for pick in (max, min))
    return "\n\n" + "\n".join(
        [
            f"  {format_count(fastest)} tokens/s",
            *(line.rstrip() for line in body),
            "  +" + "-" * _PLOT_COLUMNS,
            f"    {least} to {most} {name}",
        ]
    )


def _places(values: Sequence[float], size: int) -> list[int]:
    """Return where each value stands between the least and the most, by its logarithm."""
    powers = [log10(value) for value in values]
    least, span = min(powers), max(powers) - min(powers)
    return [round((power - least) / span * (size - 1)) if span else 0 for power in powers]
