"""How often a predicted lead of one layout over another was real, in published pairs of one job."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import fmean, median

from planner.accuracy.predict import Prediction
from planner.catalog.choice import POOLED, Lead
from planner.core.frozen import frozen
from planner.domain.dimensions import DIMENSIONS
from planner.domain.strategy import Layout

BANDS = (0.0, 0.02, 0.05, 0.10, 0.20, 0.40)
"""Where bands of predicted leads begin."""
FEWEST_PAIRS = 20
"""In a band of a source or of a kind, for its share to say something."""
_DEGREES = {dimension.field: dimension.short_name for dimension in DIMENSIONS}
_FIELDS = {
    **_DEGREES,
    "zero_stage": "ZeRO",
    "micro_batch_size": "micro-batch",
    "recompute": "recompute",
    "virtual_pipeline_size": "chunks",
}
"""In what layouts of a pair differ, beside the data parallelism that is left."""


@frozen
class Pair:
    """Two layouts of one job, both measured."""

    source: str
    framework: str
    predicted: float
    """Step time of the slower over that of the faster, less 1, by the planner."""
    measured: float
    """The same of the same two, as published: below 0 where the planner has them the wrong way."""
    difference: str
    """The fields in which they differ."""
    layouts: tuple[Layout, Layout]
    """The one that is predicted to be faster first."""


def pairs(source: str, predictions: Iterable[Prediction]) -> tuple[Pair, ...]:
    """Return every pair of layouts of each group of runs; repeated runs count once, by the median."""
    groups: dict[int, dict[Layout, list[Prediction]]] = defaultdict(lambda: defaultdict(list))
    for prediction in predictions:
        if prediction.run.step_seconds is not None:
            groups[prediction.run.group][prediction.strategy].append(prediction)
    return tuple(
        _pair(source, first, second)
        for group in groups.values()
        for first, second in combinations(group.values(), 2)
    )


def _pair(source: str, first: Sequence[Prediction], second: Sequence[Prediction]) -> Pair:
    faster, slower = sorted((first, second), key=lambda runs: runs[0].step_seconds)
    return Pair(
        source=source,
        framework=faster[0].job.framework.name,
        predicted=slower[0].step_seconds / faster[0].step_seconds - 1,
        measured=_measured(slower) / _measured(faster) - 1,
        difference=" + ".join(
            name
            for field, name in _FIELDS.items()
            if getattr(faster[0].strategy, field) != getattr(slower[0].strategy, field)
        ),
        layouts=(faster[0].strategy, slower[0].strategy),
    )


def _measured(runs: Sequence[Prediction]) -> float:
    return median(run.run.step_seconds for run in runs if run.run.step_seconds is not None)


def leads_of_frameworks(found: Sequence[Pair]) -> Mapping[str, tuple[Lead, ...]]:
    """Return the bands of each framework with enough pairs in each, and those of all sources."""
    by_framework = {
        name: tuple(pair for pair in found if pair.framework == name)
        for name in sorted({pair.framework for pair in found})
    }
    enough = {name: pairs for name, pairs in by_framework.items() if _is_enough(pairs)}
    return {name: rising(bands(pairs)) for name, pairs in {**enough, POOLED: found}.items()}


def rising(found: Iterable[Lead]) -> tuple[Lead, ...]:
    """Return bands whose shares never fall: neighbours that do by chance have the mean of their pairs.

    Source: Ayer et al., An empirical distribution function for sampling with incomplete information (1955).
    """
    pooled: list[list[Lead]] = []
    for band in found:
        pooled.append([band])
        while len(pooled) > 1 and _share_of(pooled[-2]) > _share_of(pooled[-1]):
            pooled[-2:] = [pooled[-2] + pooled[-1]]
    return tuple(
        replace(band, real_share=round(_share_of(alike), 3)) for alike in pooled for band in alike
    )


def _share_of(alike: Sequence[Lead]) -> float:
    return sum(band.pairs * band.real_share for band in alike) / sum(band.pairs for band in alike)


def bands(found: Sequence[Pair]) -> tuple[Lead, ...]:
    """Return how often leads of each band were real: the mean of the sources with enough pairs."""
    return tuple(
        Lead(
            from_fraction=start,
            pairs=len(within),
            real_share=round(fmean(_shares(within) or [_real_share(within)]), 3),
        )
        for start, within in _banded(found)
    )


def kinds(found: Sequence[Pair]) -> Mapping[str, tuple[Pair, ...]]:
    """Return the pairs by what they differ in, the most frequent first; kinds with enough pairs."""
    by_kind: dict[str, list[Pair]] = defaultdict(list)
    for pair in found:
        by_kind[pair.difference].append(pair)
    frequent = sorted(by_kind.items(), key=lambda item: -len(item[1]))
    return {
        name: tuple(pairs)
        for name, pairs in frequent
        if name and len(pairs) >= FEWEST_PAIRS * len(BANDS)
    }


def smaller_is_faster(
    found: Iterable[Pair], size: Callable[[Layout], int], *, within: float
) -> tuple[float, int]:
    """Return how often the layout with the smaller size was the faster one of a tie, and of how many pairs.

    Args:
        found: pairs of layouts of one job.
        size: of a layout; pairs with the same do not count.
        within: the largest predicted lead of what counts as a tie.
    """
    faster = [
        (size(first) < size(second)) == (pair.measured > 0)
        for pair in found
        for first, second in (pair.layouts,)
        if pair.predicted <= within and size(first) != size(second)
    ]
    return (fmean(faster) if faster else 0.0), len(faster)


def _is_enough(found: Sequence[Pair]) -> bool:
    return all(_shares(within) for _, within in _banded(found))


def _banded(found: Sequence[Pair]) -> list[tuple[float, list[Pair]]]:
    ends = (*BANDS[1:], float("inf"))
    return [
        (start, [pair for pair in found if start <= pair.predicted < end])
        for start, end in zip(BANDS, ends, strict=True)
    ]


def _shares(found: Sequence[Pair]) -> list[float]:
    by_source: dict[str, list[Pair]] = defaultdict(list)
    for pair in found:
        by_source[pair.source].append(pair)
    return [_real_share(each) for each in by_source.values() if len(each) >= FEWEST_PAIRS]


def _real_share(found: Sequence[Pair]) -> float:
    return fmean(pair.measured > 0 for pair in found) if found else 0.0
