"""Times of the same run on several numbers of GPUs: what they were, and what fits them."""

from collections.abc import Mapping
from statistics import linear_regression
from typing import Literal

from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.units import format_gpus

Fixed = Literal["", "epochs", "steps"]
"""What the runs had in common; "" where nobody said."""

COSTLIER_STEP = 1.25
"""How much longer a step on several GPUs may take beside a start-up, where two times cannot tell."""
_MOST_GPUS, _MOST_SECONDS, _MOST_TIMES = 100_000, 1e9, 64
_SAME_SHARE = 1e-6
"""Below it, all numbers of GPUs would do as much, and nothing can be fitted."""
_PAIR = 2
"""Times that any two-parameter line goes through."""
_SUCH_AS = "such as 1=43.1,2=43.1,4=48.2: GPUs=seconds of the whole run"


@frozen
class Timings:
    """Seconds of whole runs, start-up included, by the number of GPUs; two numbers at least, ascending."""

    seconds: Mapping[int, float]
    fixed: Fixed = ""
    batch_per_gpu: int | None = None
    global_batch: int | None = None
    """Of the loader, where it was the same on all numbers of GPUs."""
    start_up_seconds: float | None = None
    """From the launch to the first step, where somebody measured it."""
    loader_seconds: float | None = None
    """Of iterating the loaders alone, as the largest run did."""

    @property
    def fewest(self) -> int:
        """Return the smallest number of GPUs, which the others are compared with."""
        return min(self.seconds)

    @property
    def most(self) -> int:
        """Return the largest number of GPUs."""
        return max(self.seconds)

    @property
    def times_the_gpus(self) -> float:
        """Return how many times as many GPUs the largest run had as the smallest."""
        return self.most / self.fewest

    def loop_seconds(self, gpus: int) -> float:
        """Return the seconds of a run without its start-up, where that is known."""
        return self.seconds[gpus] - (self.start_up_seconds or 0.0)

    def ratio(self, gpus: int) -> float:
        """Return how long the loop took on these GPUs, of what it took on the fewest."""
        return self.loop_seconds(gpus) / self.loop_seconds(self.fewest)

    @property
    def speed_up(self) -> float:
        """Return how many times as fast the whole of the largest run was."""
        return self.seconds[self.fewest] / self.seconds[self.most]

    @property
    def step_growth(self) -> float:
        """Return how many times as long a step takes on the most GPUs, were nothing but steps in the times.

            growth = (n / n0) * T_n / T_n0 with the epochs fixed;  T_n / T_n0 with the steps fixed

        Notation: n GPUs at the most, n0 at the fewest; T seconds of the loop.
        Leaves out: that a fixed global batch makes each GPU's step shorter; the growth is then of its share.
        """
        return self.step_growth_until(self.most)

    def step_growth_until(self, gpus: int) -> float:
        """Return how many times as long a step takes on these GPUs as on the fewest."""
        ratio = self.ratio(gpus)
        return ratio if self.fixed == "steps" else ratio * gpus / self.fewest


def fixed_seconds(timings: Timings, step_cost: float = 1.0) -> float:
    """Return the seconds of a run that do not shrink with more GPUs, by least squares.

        T_n = a + b * x_n;  x_n = 1 on the fewest GPUs n0, step_cost * n0 / n on more

    Notation: a fixed seconds; b seconds of the loop on the fewest GPUs; step_cost how much longer a step
    takes on several GPUs.
    Source: Amdahl, Validity of the single processor approach, AFIPS 1967.
    Leaves out: what grows with the number of GPUs, such as joining them.
    """
    if timings.start_up_seconds is not None:
        return timings.start_up_seconds
    shares = [
        1.0 if gpus == timings.fewest else step_cost * timings.fewest / gpus
        for gpus in timings.seconds
    ]
    if max(shares) - min(shares) < _SAME_SHARE:
        return 0.0
    fit = linear_regression(shares, list(timings.seconds.values()))
    return min(max(0.0, fit.intercept), *timings.seconds.values())


_RISES = 1.03
"""Times the shortest run, from which a longer one is no noise."""


def prefers_costlier_steps(timings: Timings) -> bool:
    """Return whether costlier steps fit three or more times better than a start-up does.

    With a batch per GPU and the epochs fixed, a start-up makes the gain flatten with more GPUs; a costlier
    step is paid by all alike, so that the gain goes on growing. Neither makes a run longer on more GPUs: where
    one is, its steps are costlier than those of fewer.
    """
    if (
        len(timings.seconds) <= _PAIR
        or timings.global_batch
        or timings.start_up_seconds is not None
    ):
        return False
    if rises_again(timings):
        return True
    fewest = timings.seconds[timings.fewest]
    others = {gpus: s for gpus, s in timings.seconds.items() if gpus != timings.fewest}
    growths = [seconds * gpus / timings.fewest / fewest for gpus, seconds in others.items()]
    growth = sum(growths) / len(growths)
    costlier = sum(
        (seconds - growth * fewest * timings.fewest / gpus) ** 2 for gpus, seconds in others.items()
    )
    shares = [timings.fewest / gpus for gpus in timings.seconds]
    fit = linear_regression(shares, list(timings.seconds.values()))
    started = sum(
        (seconds - fit.intercept - fit.slope * share) ** 2
        for share, seconds in zip(shares, timings.seconds.values(), strict=True)
    )
    return growth > 1 and costlier < started


def rises_again(timings: Timings) -> bool:
    """Return whether the run takes longer on the most GPUs than on fewer, of several that were timed."""
    rest = [seconds for gpus, seconds in timings.seconds.items() if gpus != timings.most]
    return len(rest) > 1 and timings.seconds[timings.most] > _RISES * min(rest)


def read_times(text: str) -> dict[int, float]:
    """Return seconds by number of GPUs, ascending, from `1=43.1,2=43.1,4=48.2`.

    Colons do as well as equals signs, and blanks and lines as well as commas.

    Raises:
        InvalidInputError: it is not of that form, or has fewer than two numbers of GPUs.
    """
    times: dict[int, float] = {}
    parts = _parts(text)
    if len(parts) > _MOST_TIMES:
        raise _unreadable(f"{len(parts)} times are more than {_MOST_TIMES}")
    for part in parts:
        gpus, separator, seconds = part.partition("=")
        try:
            number, value = int(gpus), float(seconds.removesuffix("s"))
        except ValueError:
            separator = ""
            number, value = 0, 0.0
        if not separator or not 0 < number <= _MOST_GPUS or not 0 < value <= _MOST_SECONDS:
            raise _unreadable(f"cannot read {part[:40]!r} as GPUs=SECONDS")
        if number in times:
            raise _unreadable(f"two times for {format_gpus(number)}")
        times[number] = value
    if len(times) < _PAIR:
        raise _unreadable("one time says nothing about more GPUs: give two or more")
    return dict(sorted(times.items()))


def _parts(text: str) -> list[str]:
    pairs = " ".join(text.replace(",", " ").replace(":", "=").split())
    return pairs.replace(" =", "=").replace("= ", "=").replace(" s", "s").split()


def _unreadable(message: str) -> InvalidInputError:
    return InvalidInputError(message, hint=_SUCH_AS, field="--times")
