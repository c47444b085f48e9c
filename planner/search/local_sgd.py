"""How often local SGD should average: what each interval takes, and the smallest that is enough.

Notation: K optimizer steps between averages; T_K = a + b / K seconds a step, for K > 1.
"""

from dataclasses import replace
from typing import Self

import numpy as np

from planner.core.frozen import frozen
from planner.domain.job import Job
from planner.domain.strategy import Layout, vary
from planner.step_time.ledger import estimate_step_time

INTERVALS = (2, 4, 8, 16, 32, 64)
"""That are looked at: of a larger one every step of an average would matter, and none was measured."""
TIMED = (1, *INTERVALS[:2])
"""Whose steps give those of all others."""
NEAR = 0.05
"""Of the asymptote a: a step that takes no more over it gains little from a larger interval."""
FEWEST_AVERAGES = 50
"""Of a run, below which an interval is called a risk: Boytsov's runs of 40,000 samples at 8 per GPU, twice, had 156 at
K = 16 and lost 1.7 % of their F1; those of 4,000 had 15 and lost 4.1 %."""


@frozen
class LocalSgd:
    """What a step takes, by the interval between averages."""

    ddp_seconds: float
    """With gradients reduced at every step: K = 1."""
    fixed_seconds: float
    """a: a step without an average."""
    average_seconds: float
    """b: one average of all parameters, which nothing hides."""

    @classmethod
    def of_steps(cls, each: float, two: float, four: float) -> Self:
        """Return it from the steps that take their averages at each of them, every second, every fourth.

        b = 4 (T_2 - T_4); a = T_2 - b / 2
        """
        average = 4 * (two - four)
        return cls(ddp_seconds=each, fixed_seconds=two - average / 2, average_seconds=average)

    def step_seconds(self, interval: int) -> float:
        """Return T_K; of interval 1 the step of DDP."""
        if interval == 1:
            return self.ddp_seconds
        return self.fixed_seconds + self.average_seconds / interval

    @property
    def interval(self) -> int:
        """Return the smallest K with T_K <= 1.05 a: 1 where DDP is as near, and the largest where none is."""
        intervals = (1, *INTERVALS)
        return next((k for k in intervals if self._is_near(k)), intervals[-1])

    @property
    def is_near(self) -> bool:
        """Return whether the interval is within 5 % of a: not on the slowest links."""
        return self._is_near(self.interval)

    def _is_near(self, interval: int) -> bool:
        return self.step_seconds(interval) <= (1 + NEAR) * self.fixed_seconds


def local_sgd(job: Job, layout: Layout) -> LocalSgd:
    """Return what a step of whole replicas takes, by the interval between averages.

    Source: Stich, local SGD, arXiv:1805.09767; `planner.step_time.data_parallel.reduction`.

    Args:
        job: of a framework that can do it.
        layout: whole replicas; its own interval does not matter.
    """
    alone = replace(layout, synchronize_every=1)
    table = vary(alone, synchronize_every=np.array(TIMED))
    return LocalSgd.of_steps(*np.asarray(estimate_step_time(job, table).step_seconds).tolist())
