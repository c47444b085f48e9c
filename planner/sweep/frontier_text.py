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
    is_priced = any(point.usd_per_hour for _, point in _shown(frontier))
    columns = ("cluster", "GPUs", *(("price",) if is_priced else ()))
    price = "dollars per hour" if frontier.is_priced else "GPUs"
    table = _table(frontier, f"Which cluster for {frontier.of}", f"tokens/s and {price}", columns)
    return f"{table_text(table, terminal)}{_plot(_shown(frontier), price)}"


def _models_text(frontier: Frontier, terminal: Terminal) -> str:
    columns, amounts = ("model", "parameters"), "parameters and tokens/s"
    table = _table(frontier, f"Which model fits {frontier.of}", amounts, columns)
    return f"{table_text(table, terminal)}{_plot(_shown(frontier), 'parameters')}"


def _table(frontier: Frontier, title: str, amounts: str, columns: tuple[str, ...]) -> ReportTable:
    names = (*columns, "strategy", "batch", "memory", "tokens/s")
    more = len(frontier.points) - _MOST_ROWS
    left = f", {more:,} more in the file" if more > 0 else ""
    note = f"of {plans(frontier.out_of)}, those that none beats in {amounts}{left}"
    return ReportTable(
        title=title,
        note="the only plan" if frontier.out_of == 1 else note,
        headings=(
            Heading(name=""),
            *(
                Heading(
                    name=name,
                    is_key=name == columns[0],
                    is_number=name not in _WORDS,
                    is_detail=name in _DETAILS,
                )
                for name in names
            ),
        ),
        rows=tuple(
            ReportRow(cells=(mark, *(_CELLS[name](point) for name in names)))
            for mark, point in _shown(frontier)
        ),
    )


def _shown(frontier: Frontier) -> list[tuple[str, Point]]:
    return list(zip(ascii_letters, frontier.points[:_MOST_ROWS], strict=False))


def _price(point: Point) -> str:
    return f"{point.usd_per_hour:,.2f} $/h" if point.usd_per_hour else "unknown"


_WORDS, _DETAILS = ("cluster", "model", "strategy"), ("batch", "memory")
_CELLS: Mapping[str, Callable[[Point], str]] = {
    "cluster": lambda point: point.cluster,
    "model": lambda point: point.model,
    "GPUs": lambda point: f"{point.gpus:,}",
    "parameters": lambda point: format_count(point.parameters),
    "price": _price,
    "strategy": lambda point: point.family,
    "batch": lambda point: f"{point.global_batch_size:,}",
    "memory": lambda point: format_bytes(point.reserved_bytes),
    "tokens/s": lambda point: format_count(point.tokens_per_second),
}
_AMOUNTS: Mapping[str, Callable[[Point], float]] = {
    "dollars per hour": lambda point: point.usd_per_hour or 0.0,
    "GPUs": lambda point: point.gpus,
    "parameters": lambda point: point.parameters,
}
"""What a plot has across."""


def _plot(shown: Sequence[tuple[str, Point]], name: str) -> str:
    """Return the points by their letters, both axes in powers; of two there is nothing to draw."""
    if len(shown) < _FEWEST_DRAWN:
        return ""
    across = [_AMOUNTS[name](point) for _, point in shown]
    columns = _places(across, _PLOT_COLUMNS)
    rows = _places([point.tokens_per_second for _, point in shown], _PLOT_ROWS)
    grid = [[" "] * _PLOT_COLUMNS for _ in range(_PLOT_ROWS)]
    for (mark, _), column, row in zip(shown, columns, rows, strict=True):
        grid[_PLOT_ROWS - 1 - row][column] = mark
    fastest = max(point.tokens_per_second for _, point in shown)
    body = ["  | " + "".join(line).rstrip() for line in grid]
    most, least = (format_count(pick(across)) for pick in (max, min))
    return "\n\n" + "\n".join(
        [
            f"  {format_count(fastest)} tokens/s",
            *(line.rstrip() for line in body),
            "  +" + "-" * _PLOT_COLUMNS,
            f"    {least} to {most} {name}",
        ]
    )


def _places(values: Sequence[float], size: int) -> list[int]:
    powers = [log10(value) for value in values]
    least, span = min(powers), max(powers) - min(powers)
    return [round((power - least) / span * (size - 1)) if span else 0 for power in powers]
