"""Seconds of steps -> how well their median is known, and who can still win; predicted leads -> what a race may gain."""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, median

from planner.catalog.choice import lead, leads
from planner.core.frozen import frozen

KNOWN = 0.02
"""Of the median: what is known as well has been measured."""
OPEN = 0.9
"""Odds of a predicted lead, below which it is run."""
FEWEST = 6
"""Steps from which the least and the largest enclose the median with odds of 19 in 20."""
MOST_STARTS = 3
"""Of a plan, where one start does not tell it from another."""
STARTS_APART = 0.046
"""Standard deviation of the median step between starts of the same files on a machine's cores, as a share of it: the
median of the layouts of data/measurements/cpu_proof.toml, each of five starts. GPUs' starts are taken as alike."""
_MISSED = 0.05
_FAR = 1.5
"""Times the best's upper bound: who takes longer in both of two steps is left behind before there are six."""
_LIKELY = NormalDist().inv_cdf(0.9)
_ONE_SIDED = NormalDist().inv_cdf(1 - _MISSED)


@frozen
class Interval:
    """The median of a run's steps, and where it lies with odds of 19 in 20."""

    low: float
    median: float
    high: float

    @property
    def is_known(self) -> bool:
        """Return whether the median is known to 2 %."""
        return self.is_within(KNOWN)

    def is_within(self, share: float) -> bool:
        """Return whether the median is known to a share of it."""
        return max(self.high - self.median, self.median - self.low) <= share * self.median


def interval(seconds: Sequence[float]) -> Interval:
    """Return the median of some steps, and the order statistics around it.

    the k-th least and the k-th largest of n miss the median with odds of
    2 x P(fewer than k of n coins show heads)
    """
    ordered, missed, outer = sorted(seconds), 0.0, -1
    while missed <= _MISSED / 2:
        outer += 1
        missed += math.comb(len(ordered), outer) / 2 ** len(ordered)
    if outer == 0:
        return Interval(low=0.0, median=median(ordered), high=math.inf)
    return Interval(low=ordered[outer - 1], median=median(ordered), high=ordered[-outer])


def interval_of_starts(starts: Sequence[Sequence[float]]) -> Interval:
    """Return the median step of one start, see `interval`; of several the median of theirs, between the least and the most."""
    if len(starts) == 1:
        return interval(starts[0])
    found = [median(each) for each in starts]
    return Interval(low=min(found), median=median(found), high=max(found))


def is_within_starts(seconds: float, best: float, starts: int, *, on_cpus: bool) -> bool:
    """Return whether a median may be 2 % less than the best's once both are known from many starts.

    Two means of n starts each differ by less than 1.64 x sqrt(2 / n) standard deviations 19 times in 20, one-sided.
    """
    apart = _ONE_SIDED * math.sqrt(2 / starts) * STARTS_APART if on_cpus else 0.0
    return seconds * (1 + KNOWN) < best * (1 + apart)


def is_behind(seconds: Sequence[float], best_high: float) -> bool:
    """Return whether steps show that a plan cannot win any more against one whose median is no higher."""
    if not seconds:
        return False
    is_far = len(seconds) > 1 and min(seconds) > _FAR * best_high
    return is_far or interval(seconds).low > best_high


def is_decided(seconds: Sequence[float], best_high: float) -> bool:
    """Return whether more steps settle nothing: the median is known, or not more than 2 % below the best's any more."""
    if not seconds:
        return False
    found = interval(seconds)
    return found.is_known or found.low * (1 + KNOWN) > best_high or is_behind(seconds, best_high)


def better_half(seconds: Mapping[str, Sequence[float]]) -> list[str]:
    """Return the faster half of some plans by their median steps, one at least; those without a step come last."""
    order = sorted(seconds, key=lambda name: median(seconds[name] or [math.inf]))
    return order[: math.ceil(len(order) / 2)]


def odds_of_lead(framework: str, faster: float, slower: float) -> float:
    """Return how often such a predicted lead was real."""
    return lead(framework, slower / faster - 1).real_share


def is_open(framework: str, fastest: float, seconds: float) -> bool:
    """Return whether a plan's predicted step leaves open that it is the fastest."""
    return odds_of_lead(framework, fastest, seconds) < OPEN


def may_gain(framework: str, steps: Sequence[float]) -> float:
    """Return by how much the measured best may be faster than the planned one: one time in ten it is by more.

    The logarithm of a measured lead is taken as normal around that of the predicted one, as wide as published
    pairs say: each band's share of real leads is one quantile.
    """
    widths = [
        math.log1p((one.from_fraction + other.from_fraction) / 2)
        / NormalDist().inv_cdf(one.real_share)
        for one, other in zip(leads(framework), leads(framework)[1:], strict=False)
        if one.from_fraction and one.real_share < 1
    ]
    first, *others = sorted(steps)
    near = [math.log(other / first) for other in others]
    return math.expm1(max(0.0, _LIKELY * median(widths) - min(near, default=math.inf)))
