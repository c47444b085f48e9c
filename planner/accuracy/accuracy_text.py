"""Predicted against published, as text for a terminal and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from textwrap import fill
from typing import Any

from planner.accuracy.predict import Accuracy, Errors, Prediction, Refusal
from planner.catalog.published_runs import RunSource
from planner.core.units import format_bytes, format_fraction, format_seconds
from planner.report.layout_words import cluster_text, layout_text
from planner.report.values import WIDTH, Emphasis, Terminal, columns_text

SHOWN_SHARE = 0.01
"""Terms below 1 % of the step are left out of a worst run's list."""

Results = Sequence[Prediction | Refusal]
Cells = tuple[str, ...]

TIME_COLUMNS = (
    "source",
    "runs",
    "refused",
    "median",
    "mean",
    "90 %",
    "bias",
    "Spearman",
    "in range",
)
CHOICE_COLUMNS = ("source", "groups", "right", "regret", "90 %", "by lot")
MEMORY_COLUMNS = ("source", "kind", "runs", "median", "90 %", "bias", "ran: fits", "OOM: does not")


def accuracy_text(
    accuracies: Sequence[Accuracy], worst: Mapping[str, Results], bold: Emphasis
) -> str:
    """Return the tables of all sources, then the worst runs of each.

    Args:
        accuracies: one per source.
        worst: by source; empty where none are wanted.
        bold: how the terminal emphasises, or the identity.
    """
    parts = [
        ("Step time, error against published", TIME_COLUMNS, time_rows(accuracies)),
        ("Choice among three or more layouts of one job", CHOICE_COLUMNS, choice_rows(accuracies)),
        ("Memory", MEMORY_COLUMNS, memory_rows(accuracies)),
    ]
    sections = [
        bold(title) + "\n" + columns_text([head, *rows]) for title, head, rows in parts if rows
    ]
    for source, results in worst.items():
        lines = "\n".join(_worst_text(result) for result in results)
        sections.append(bold(f"Worst of {source}") + "\n" + lines)
    return "\n\n".join(sections)


def source_text(source: RunSource, terminal: Terminal) -> str:
    """Return where the runs of a source are from, on what they ran, and what to know of them."""
    said = (
        f"{source.source}. {len(source.runs):,} runs.",
        f"{source.hardware}; {source.software}.",
    )
    caveats = (terminal.paragraph(each, first="- ", rest="  ") for each in source.caveats)
    return "\n".join((terminal.bold(source.name), *map(terminal.paragraph, said), *caveats))


def time_rows(accuracies: Sequence[Accuracy]) -> list[Cells]:
    """Return the cells of `TIME_COLUMNS`, a row per source."""
    rows = []
    for accuracy in accuracies:
        cells = _error_cells(accuracy.time, "median", "mean", "p90")
        rho = "" if accuracy.rank_correlation is None else f"{accuracy.rank_correlation:.2f}"
        head = (accuracy.source, f"{accuracy.runs:,}", f"{accuracy.refused:,}")
        rows.append((*head, *cells, rho, _percent(accuracy.coverage)))
    return rows


def choice_rows(accuracies: Sequence[Accuracy]) -> list[Cells]:
    """Return the cells of `CHOICE_COLUMNS`, a row per source with groups of layouts."""
    return [
        (
            accuracy.source,
            f"{choice.groups:,}",
            _percent(choice.right_fraction),
            _percent(choice.mean_regret),
            _percent(choice.p90_regret),
            _percent(choice.random_regret),
        )
        for accuracy in accuracies
        if (choice := accuracy.choice)
    ]


def memory_rows(accuracies: Sequence[Accuracy]) -> list[Cells]:
    """Return the cells of `MEMORY_COLUMNS`, a row per source; blank where nobody measured it."""
    rows: list[Cells] = []
    for accuracy in accuracies:
        errors = accuracy.memory
        rows.append(
            (
                accuracy.source,
                accuracy.memory_kind,
                f"{errors.runs:,}" if errors else "",
                *_error_cells(errors, "median", "p90"),
                _percent(accuracy.ran_and_fits),
                _percent(accuracy.ran_out_and_does_not_fit),
            )
        )
    return rows


def _error_cells(errors: Errors | None, *names: str) -> Cells:
    if errors is None:
        return ("",) * (len(names) + 1)
    return (*(_percent(getattr(errors, name)) for name in names), _signed(errors.bias))


def accuracy_answer(
    accuracies: Sequence[Accuracy], worst: Mapping[str, Results]
) -> list[dict[str, Any]]:
    """Return the same as JSON, one object per source."""
    return [
        {
            **asdict(accuracy),
            "worst": [_worst_answer(result) for result in worst.get(accuracy.source, ())],
        }
        for accuracy in accuracies
    ]


def _worst_text(result: Prediction | Refusal) -> str:
    if isinstance(result, Refusal):
        return f"  {result.run.id}  refused: {result.reason}"
    parts = [result.run.id]
    if result.time_error is not None:
        predicted, measured = result.step_seconds, result.run.step_seconds or 0.0
        parts.append(_compared("step", result.time_error, predicted, measured, format_seconds))
    if result.memory_error is not None:
        predicted, measured = result.peak_bytes, result.run.peak_bytes or 0.0
        parts.append(_compared("memory", result.memory_error, predicted, measured, format_bytes))
    if result.fits == result.run.is_out_of_memory:
        parts.append("said to fit, ran out of memory" if result.fits else "said not to fit, ran")
    shares = sorted(result.shares, key=lambda share: -share[1])
    terms = [
        f"{name.replace('_', ' ')} {_percent(share)}"
        for name, share in shares
        if share >= SHOWN_SHARE
    ]
    where = f"{cluster_text(result.job)}, {layout_text(result.strategy, result.job)}"
    return "\n".join((f"  {'  '.join(parts)}", _indented(where), _indented(", ".join(terms))))


def _indented(text: str) -> str:
    return fill(text, WIDTH, initial_indent="    ", subsequent_indent="    ")


def _compared(what: str, error: float, predicted: float, measured: float, show: Any) -> str:
    return f"{what} {_signed(error)} ({show(predicted)}, measured {show(measured)})"


def _worst_answer(result: Prediction | Refusal) -> dict[str, Any]:
    if isinstance(result, Refusal):
        return {"id": result.run.id, "refused": result.reason}
    return {
        "id": result.run.id,
        "fits": result.fits,
        "is_out_of_memory": result.run.is_out_of_memory,
        "step_seconds": result.step_seconds,
        "measured_step_seconds": result.run.step_seconds,
        "time_error": result.time_error,
        "peak_bytes": round(result.peak_bytes),
        "measured_peak_bytes": result.run.peak_bytes and round(result.run.peak_bytes),
        "memory_error": result.memory_error,
        "shares": dict(result.shares),
    }


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else format_fraction(fraction)


def _signed(fraction: float) -> str:
    return ("+" if fraction >= 0 else "") + format_fraction(fraction)
