"""How well the planner predicts published runs: every run estimated again, errors by source."""

import json
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median
from typing import TypeVar

import numpy as np

from planner.catalog.published_runs import Run, RunSource
from planner.core.errors import PlannerError
from planner.core.frozen import frozen
from planner.core.term import Column, pick
from planner.domain.job import Job
from planner.domain.strategy import Layout, tabulate
from planner.memory.ledger import estimate_memory, stage_memory
from planner.request.schema import Request, parse_request, resolve
from planner.request.strategy import requested_layout
from planner.step_time.ledger import estimate_step_time

SMALLEST_GROUP = 3
"""Runs among which choosing says something."""
CLOSE = 1.02
"""A choice within 2 % of the fastest run of its group counts as right."""
_TIE = 1 + 1e-6
"""Predictions closer than this are tied: the rest is rounding."""


@frozen
class Compared:
    """A published run beside what the planner says of it."""

    run: Run
    step_seconds: float
    peak_bytes: float
    """Of the kind, and on the rank, that the source measured."""

    @property
    def time_error(self) -> float | None:
        """Return predicted over measured step time, less 1; None where it was not measured."""
        seconds = self.run.step_seconds
        return None if seconds is None else self.step_seconds / seconds - 1

    @property
    def memory_error(self) -> float | None:
        """Return predicted over measured memory, less 1; None where it was not measured."""
        peak = self.run.peak_bytes
        return None if peak is None else self.peak_bytes / peak - 1

    @property
    def largest_error(self) -> float:
        """Return the larger of both errors without its sign; 0 where nothing was measured."""
        return max(abs(error or 0.0) for error in (self.time_error, self.memory_error))


@frozen
class Prediction(Compared):
    """The same with what it was estimated from."""

    job: Job
    strategy: Layout
    fits: bool
    low_seconds: float
    high_seconds: float
    shares: tuple[tuple[str, float], ...]
    """Each term of the step time by name, as a fraction of the step."""


@frozen
class Refusal:
    """A published run that the planner does not estimate, and why."""

    run: Run
    reason: str


@frozen
class Errors:
    """Errors of one quantity, as fractions of what was measured; all but `bias` without sign."""

    runs: int
    median: float
    mean: float
    p90: float
    bias: float
    """Their mean with the sign: above 0 where the planner says too much."""


@frozen
class ChoiceQuality:
    """What following the planner costs inside groups of runs that differ only in the layout."""

    groups: int
    right_fraction: float
    """Groups whose predicted fastest is within 2 % of the measured fastest."""
    mean_regret: float
    """Share of the step that the best layout would have saved over the chosen one."""
    p90_regret: float
    random_regret: float
    """The same for a layout drawn by lot."""


@frozen
class Accuracy:
    """The figures of one source; None where it published nothing to compare with."""

    source: str
    runs: int
    refused: int
    time: Errors | None
    rank_correlation: float | None
    """Spearman's, of predicted and measured step time over all runs of the source."""
    coverage: float | None
    """Runs whose measured step time lies between the predicted low and high."""
    choice: ChoiceQuality | None
    memory_kind: str
    memory: Errors | None
    ran_and_fits: float | None
    """Runs that ran, of which the planner says that they fit."""
    ran_out_and_does_not_fit: float | None
    """Runs that ran out of memory, of which the planner says that they do not fit."""


ResultT = TypeVar("ResultT", bound=Compared | Refusal)


def predict(source: RunSource) -> tuple[Prediction | Refusal, ...]:
    """Return the estimate of every run of a source, in order.

    Runs of one model, cluster and recipe are one job, estimated as one table of layouts.
    """
    jobs: dict[str, dict[int, Request]] = {}
    for index, run in enumerate(source.runs):
        key = json.dumps([run.request[part] for part in ("model", "cluster", "recipe")])
        jobs.setdefault(key, {})[index] = parse_request(run.request)
    results: dict[int, Prediction | Refusal] = {}
    for requests in jobs.values():
        results |= _predict_job(source, requests)
    return tuple(results[index] for index in range(len(source.runs)))


def _predict_job(
    source: RunSource, requests: dict[int, Request]
) -> dict[int, Prediction | Refusal]:
    layouts: dict[int, Layout] = {}
    results: dict[int, Prediction | Refusal] = {}
    job = None
    for index, request in requests.items():
        try:
            if job is None:
                job = resolve(request, allow_paths=False, weights_dtype="config", of_a_run=True).job
            layouts[index] = requested_layout(request.strategy, job)
        except PlannerError as error:
            results[index] = Refusal(run=source.runs[index], reason=error.message)
    if job is not None and layouts:
        runs = [source.runs[index] for index in layouts]
        results |= zip(
            layouts, _predict_table(source, job, runs, list(layouts.values())), strict=True
        )
    return results


def _predict_table(
    source: RunSource, job: Job, runs: Sequence[Run], layouts: Sequence[Layout]
) -> Iterable[Prediction]:
    table = tabulate(layouts)
    memory, step_time = estimate_memory(job, table), estimate_step_time(job, table)
    peak, fits = memory.reserved_bytes, memory.reserved_bytes <= job.usable_bytes
    if source.memory_kind == "allocated":
        first = 0 * table.pipeline_parallel_size
        ledger = stage_memory(job, table, first) if source.is_first_rank else memory
        peak = ledger.peak_bytes
    for row, (run, layout) in enumerate(zip(runs, layouts, strict=True)):
        seconds = float(pick(step_time.step_seconds, row))
        yield Prediction(
            run=run,
            job=job,
            strategy=layout,
            fits=bool(pick(fits, row)),
            step_seconds=seconds,
            low_seconds=float(pick(step_time.low_seconds, row)),
            high_seconds=float(pick(step_time.high_seconds, row)),
            peak_bytes=float(pick(peak, row)),
            shares=tuple(
                (term.name, float(pick(term.amount, row)) / seconds) for term in step_time.terms
            ),
        )


def summarize(source: RunSource, results: Sequence[Prediction | Refusal]) -> Accuracy:
    """Return the figures of a source from what `predict` gave for it."""
    predictions = [result for result in results if isinstance(result, Prediction)]
    timed = [
        (prediction, prediction.run.step_seconds)
        for prediction in predictions
        if prediction.run.step_seconds is not None
    ]
    return Accuracy(
        source=source.name,
        runs=len(results),
        refused=len(results) - len(predictions),
        time=_errors(prediction.time_error for prediction in predictions),
        rank_correlation=rank_correlation(
            [prediction.step_seconds for prediction, _ in timed], [seconds for _, seconds in timed]
        ),
        coverage=_share_of_true(
            prediction.low_seconds <= seconds <= prediction.high_seconds
            for prediction, seconds in timed
        ),
        choice=_choice_quality(timed),
        memory_kind=source.memory_kind,
        memory=_errors(prediction.memory_error for prediction in predictions),
        ran_and_fits=_share_of_true(
            prediction.fits for prediction in predictions if not prediction.run.is_out_of_memory
        ),
        ran_out_and_does_not_fit=_share_of_true(
            not prediction.fits for prediction in predictions if prediction.run.is_out_of_memory
        ),
    )


def worst(results: Sequence[ResultT], count: int) -> tuple[ResultT, ...]:
    """Return the results that are furthest off: refused ones, then by the larger error."""

    def badness(result: Compared | Refusal) -> float:
        return np.inf if isinstance(result, Refusal) else result.largest_error

    return tuple(sorted(results, key=badness, reverse=True)[:count])


def rank_correlation(predicted: Sequence[float], measured: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation; None for fewer than three, or where one is constant.

        rho = corr(rank(predicted), rank(measured)), equal values sharing their mean rank

    Source: Spearman (1904), The Proof and Measurement of Association between Two Things.
    """
    if len(predicted) < SMALLEST_GROUP or len(set(predicted)) == 1 or len(set(measured)) == 1:
        return None
    return float(np.corrcoef(_ranks(predicted), _ranks(measured))[0, 1])


def _ranks(values: Sequence[float]) -> Column:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def _errors(values: Iterable[float | None]) -> Errors | None:
    errors = [error for error in values if error is not None]
    if not errors:
        return None
    sizes = [abs(error) for error in errors]
    return Errors(
        runs=len(errors),
        median=median(sizes),
        mean=fmean(sizes),
        p90=_p90(sizes),
        bias=fmean(errors),
    )


def _p90(values: Sequence[float]) -> float:
    return sorted(values)[len(values) * 9 // 10]


def _share_of_true(truths: Iterable[bool]) -> float | None:
    values = list(truths)
    return fmean(values) if values else None


def _choice_quality(timed: Sequence[tuple[Prediction, float]]) -> ChoiceQuality | None:
    groups: dict[int, list[tuple[Prediction, float]]] = {}
    for prediction, seconds in timed:
        groups.setdefault(prediction.run.group, []).append((prediction, seconds))
    large = [group for group in groups.values() if len(group) >= SMALLEST_GROUP]
    if not large:
        return None
    regrets = [_mean_over_chosen(group, _regret) for group in large]
    return ChoiceQuality(
        groups=len(large),
        right_fraction=fmean(_mean_over_chosen(group, _is_close) for group in large),
        mean_regret=fmean(regrets),
        p90_regret=_p90(regrets),
        random_regret=fmean(
            fmean(_regret(min(s for _, s in group), seconds) for _, seconds in group)
            for group in large
        ),
    )


def _mean_over_chosen(
    group: Sequence[tuple[Prediction, float]], score: Callable[[float, float], float]
) -> float:
    """Return the score of the layout chosen in a group; of all tied for it, the mean.

    Chosen is the fastest predicted among those said to fit, or among all where none is.
    """
    best = min(seconds for _, seconds in group)
    fitting = [(prediction, seconds) for prediction, seconds in group if prediction.fits] or group
    fastest = min(prediction.step_seconds for prediction, _ in fitting)
    return fmean(
        score(best, seconds)
        for prediction, seconds in fitting
        if prediction.step_seconds <= fastest * _TIE
    )


def _regret(best_seconds: float, seconds: float) -> float:
    return 1 - best_seconds / seconds


def _is_close(best_seconds: float, seconds: float) -> float:
    return float(seconds <= best_seconds * CLOSE)
