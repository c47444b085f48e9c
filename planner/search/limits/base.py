"""What a limit is: a reason why a layout cannot run, or why the search does not propose it."""

from collections.abc import Callable

import numpy as np

from planner.core.documented import documentation, shown_name
from planner.core.frozen import frozen
from planner.core.term import Truth
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import Strategy, Whole


@frozen
class Limit:
    """A code and the function that judges layouts; the function's docstring is the documentation."""

    code: str
    judge: Callable[[Job, Strategy], Breach]
    is_hard: bool = False
    """Nobody can run it, so it is not even estimated; other limits bind the search alone."""
    is_ability: bool = False
    """It is about what the framework can do."""

    severity = "limit"

    @property
    def name(self) -> str:
        """Return what is broken, in kebab case."""
        return shown_name(self.judge)

    @property
    def text(self) -> str:
        """Return the statement and its Why, Instead and Source."""
        return documentation(self.judge)


def divides(size: Whole, total: Whole) -> Truth:
    """Return whether size is a divisor of whole; either may be a column."""
    is_divisor: Truth = np.mod(total, np.maximum(size, 1)) == 0
    return is_divisor
