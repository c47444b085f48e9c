"""Published runs, predicted again -> pages: each source with its errors, a picture and its worst runs."""

from collections.abc import Callable, Sequence

from markupsafe import Markup

from planner.accuracy.kept import kept
from planner.accuracy.predict import Accuracy, Compared, Errors, Refusal, worst
from planner.catalog.published_runs import run_source, source_names
from planner.core.units import GIB, format_bytes, format_fraction, format_percent, format_seconds
from web.predicted import Measure, draw_predicted
from web.sheet import Cell, Sheet, SheetTable, facts, number

_WORST = 20
"""Runs of a source that are listed."""
_NONE = format_fraction(0)
_TIMES = ("Step", "Predicted", "Off")
_MEMORY = ("Memory", "Predicted", "Off")
_LISTED = ("Step off", "Nine in ten", "In range", "Memory off")


def accuracy_sheet() -> Sheet:
    """Return the sources of published runs, each with what it ran on."""
    sources = [run_source(name) for name in source_names()]
    rows = tuple(
        (
            Cell(text=each.name, href=f"/accuracy/{each.name}"),
            number(f"{len(each.runs):,}"),
            *map(number, _listed(kept(each.name).figures)),
            Cell(text=each.hardware),
        )
        for each in sources
    )
    return Sheet(
        title="Predicted against published",
        json="/accuracy.json",
        lead=f"{sum(len(each.runs) for each in sources):,} runs that others published, each"
        " estimated again with every change of the planner.",
        tables=(
            SheetTable(
                title="",
                headings=("Source", "Runs", *_LISTED, "Hardware"),
                rows=rows,
                note="Off: predicted against published, in the median, without its sign. Nine in ten: that"
                " many steps are no further off. In range: steps between the predicted low and high.",
            ),
        ),
    )


def _listed(found: Accuracy) -> tuple[str, ...]:
    time, memory = found.time, found.memory
    return (
        _share(time.median if time else None),
        _share(time.p90 if time else None),
        _share(found.coverage),
        _share(memory.median if memory else None),
    )


def source_sheet(name: str) -> Sheet:
    """Return how far off the planner is of a source's runs.

    Raises:
        UnknownNameError: there is no such source.
    """
    source = run_source(name)
    found, results = kept(name).figures, kept(name).results
    return Sheet(
        title=source.name,
        lead="Published runs of one source, predicted again.",
        json=f"/accuracy/{source.name}.json",
        above=(Cell(text="Predicted against published", href="/accuracy"),),
        facts=facts(
            [
                (
                    "Runs",
                    f"{found.runs:,}" + (f", {found.refused:,} refused" if found.refused else ""),
                ),
                ("Step time", _errors(found.time)),
                ("In the predicted range", _share(found.coverage)),
                ("Memory", _errors(found.memory)),
                ("Ran, and is said to fit", _share(found.ran_and_fits)),
                ("Ran out, and is said not to fit", _share(found.ran_out_and_does_not_fit)),
                ("Choice", _choice(found)),
                ("Hardware", source.hardware),
                ("Software", source.software),
                ("Source", source.source),
            ]
        ),
        picture=_pictures([each for each in results if isinstance(each, Compared)]),
        tables=(_worst_runs(results),),
        notes=source.caveats,
    )


def _errors(errors: Errors | None) -> str:
    if errors is None:
        return ""
    bias = format_fraction(abs(errors.bias))
    way = f"{bias} too {'much' if errors.bias > 0 else 'little'}" if bias != _NONE else "level"
    within = format_fraction(errors.p90)
    return f"{format_fraction(errors.median)} off in the median, nine in ten within {within}; {way} on average"


def _share(share: float | None) -> str:
    return "" if share is None else format_fraction(share)


def _choice(found: Accuracy) -> str:
    choice = found.choice
    if choice is None:
        return ""
    groups = f"{choice.groups} groups" if choice.groups > 1 else "one group"
    return (
        f"right in {format_fraction(choice.right_fraction)} of {groups} of layouts; following it costs"
        f" {format_percent(choice.mean_regret)} of the step, a choice by lot {format_fraction(choice.random_regret)}"
    )


def _pictures(predictions: Sequence[Compared]) -> Markup | None:
    times = [
        (each.run.step_seconds, each.step_seconds) for each in predictions if each.run.step_seconds
    ]
    peaks = [(each.run.peak_bytes, each.peak_bytes) for each in predictions if each.run.peak_bytes]
    step = Measure(name="Step time", show=format_seconds, unit=1.0)
    memory = Measure(name="Memory", show=format_bytes, unit=GIB)
    drawn = [
        draw_predicted(pairs, measure)
        for pairs, measure in ((times, step), (peaks, memory))
        if pairs
    ]
    return Markup().join(drawn) if drawn else None


def _worst_runs(results: Sequence[Compared | Refusal]) -> SheetTable:
    shown = worst(results, _WORST)
    title = "Runs" if len(shown) == len(results) else f"The {_WORST} that are furthest off"
    compared = [each for each in shown if isinstance(each, Compared)]
    has_times = any(each.run.step_seconds for each in compared)
    has_memory = any(each.run.peak_bytes or each.run.is_out_of_memory for each in compared)
    sides = [(_TIMES, _times)] * has_times + [(_MEMORY, _memory)] * has_memory
    return SheetTable(
        title=title,
        headings=("Run", *(heading for headings, _ in sides for heading in headings)),
        rows=tuple(_row(each, [cells for _, cells in sides]) for each in shown),
    )


def _row(
    result: Compared | Refusal, sides: Sequence[Callable[[Compared], tuple[str, ...]]]
) -> tuple[Cell, ...]:
    if isinstance(result, Refusal):
        return (Cell(text=result.run.id), Cell(text=f"refused: {result.reason}"))
    figures = (figure for cells in sides for figure in cells(result))
    return (Cell(text=result.run.id), *map(number, figures))


def _times(result: Compared) -> tuple[str, ...]:
    seconds = result.run.step_seconds
    if not seconds:
        return ("", "", "")
    return (
        format_seconds(seconds),
        format_seconds(result.step_seconds),
        _signed(result.time_error),
    )


def _memory(result: Compared) -> tuple[str, ...]:
    peak, ran_out = result.run.peak_bytes, result.run.is_out_of_memory
    if not peak and not ran_out:
        return ("", "", "")
    published = "out of memory" if ran_out or not peak else format_bytes(peak)
    return (published, format_bytes(result.peak_bytes), _signed(result.memory_error))


def _signed(error: float | None) -> str:
    return "" if error is None else f"{100 * error:+.0f} %"
