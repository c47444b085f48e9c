"""The tables of docs/accuracy/cpu_proof.md, drawn from what was measured and what the planner says of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from statistics import median

from planner.race.odds import KNOWN
from proof.jobs import LAYOUTS, SUBJECTS
from proof.judge import Job, Judged, by_job, median_error, share_right
from proof.measured import Raced
from proof.wires import WIRES


def summary(judged: Sequence[Judged]) -> Iterator[str]:
    """Yield how good the plans are: of all layouts, and of those that train alike."""
    everything = by_job(judged)
    alike = [job.of_same_training() for job in everything]
    yield "| | goal | all layouts | without local SGD |"
    yield "| --- | ---: | ---: | ---: |"
    for name, goal, figure in _FIGURES:
        yield f"| {name} | {goal} | {figure(everything)} | {figure(alike)} |"
    right = sum(planned == measured for planned, measured in (job.sides for job in everything))
    yield f"| DDP on its side of the link's threshold | | {right} of {len(everything)} jobs | |"


def _error(jobs: Sequence[Job]) -> str:
    return f"{median_error(list(chain.from_iterable(job.runs for job in jobs))):.1%}"


_FIGURES: tuple[tuple[str, str, Callable[[Sequence[Job]], str]], ...] = (
    ("median error of a step", "10 %", _error),
    (
        "rank correlation, median of the jobs",
        "",
        lambda jobs: f"{median(job.correlation for job in jobs):.2f}",
    ),
    (
        "regret of the choice, mean of the jobs",
        "3 %",
        lambda jobs: f"{sum(job.regret for job in jobs) / len(jobs):.1%}",
    ),
    ("largest regret", "", lambda jobs: f"{max(job.regret for job in jobs):.1%}"),
    ("winner right", "90 %", lambda jobs: f"{share_right(jobs):.0%}"),
)


def runs_table(judged: Sequence[Judged]) -> Iterator[str]:
    """Yield every run, a table for each wire: seconds of a step, and how far the plan is off."""
    by_place = {(each.run.wire, each.run.subject.name, each.run.layout): each for each in judged}
    names = [subject.name for subject in SUBJECTS]
    for wire in WIRES:
        if not any(key[0] == wire for key in by_place):
            continue
        yield f"| {wire.name} | {' | '.join(names)} |"
        yield f"| --- |{' ---: |' * len(names)}"
        for layout in LAYOUTS:
            cells = [_cell(by_place.get((wire, name, layout))) for name in names]
            if any(cells):
                yield f"| {layout} | {' | '.join(cells)} |"
        yield ""


def _cell(each: Judged | None) -> str:
    return f"{each.measured * 1e3:,.0f} ms, {each.error:+.0%}" if each else ""


BLOCKS: Mapping[str, Callable[[Sequence[Judged]], Iterator[str]]] = {
    "summary": summary,
    "runs": runs_table,
}
"""By the name of their place on the page."""


def races_table(raced: Sequence[Raced]) -> Iterator[str]:
    """Yield what each race found, in which share of the time of running all to the end."""
    yield "| wire | model | raced | winner | fastest of all | behind it | race | all to the end | share |"
    yield "| --- | --- | ---: | --- | --- | ---: | ---: | ---: | ---: |"
    for each in raced:
        yield (
            f"| {each.wire} | {each.model} | {each.raced} | {each.winner} | {each.fastest} |"
            f" {each.behind:.1%} | {_times(each.seconds, each.seconds_of_all)} |"
        )
    right = sum(each.behind <= KNOWN for each in raced)
    spent, whole = (
        sum(getattr(each, name) for each in raced) for name in ("seconds", "seconds_of_all")
    )
    label = f"measured: {len(raced)} of {len(WIRES) * len(SUBJECTS)}"
    yield f"| {label} | | | {right} of {len(raced)} right | | | {_times(spent, whole)} |"


def _times(seconds: float, of_all: float) -> str:
    return f"{seconds:.0f} s | {of_all:.0f} s | {seconds / of_all:.0%}"
