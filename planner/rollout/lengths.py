"""How long completions are: their mean, their longest, and what a cache reads over all of their tokens.

Notation: M the most tokens of a completion, m the mean.
"""

import math

from planner.core.frozen import frozen

_NEARLY_ALL = 0.97
"""A mean of such a share of the most says that nearly every completion is cut off there."""
_EULER = 0.5772
_HALVINGS = 60


@frozen
class Lengths:
    """Tokens of completions."""

    most: int
    """Where generation stops."""
    mean: float
    mean_square: float
    scale: float
    """Of the exponential before it is cut off; infinite where all are as long as may be."""

    def longest_of(self, completions: int) -> float:
        """Return the tokens of the longest of so many: it sets the pace.

        min(M, l (ln n + 0.577)), the mean of the largest of n exponentials
        """
        if math.isinf(self.scale):
            return float(self.most)
        return min(float(self.most), self.scale * (math.log(max(1, completions)) + _EULER))


def lengths(most: int, mean: float | None = None) -> Lengths:
    """Return the lengths of completions that end with the same chance at each token, cut off at the most.

        m = l (1 - e^(-M / l)), solved for l;  mean square = 2 l^2 (1 - e^(-M / l) (1 + M / l))

    Where no mean is said, or nearly the most, all are as long as they may be.

    Args:
        most: tokens of a completion.
        mean: of them; None where nobody says.

    Leaves out: lengths with a peak of their own, of which fewer reach the end.
    """
    if mean is None or mean >= _NEARLY_ALL * most:
        tokens = float(most if mean is None else min(mean, most))
        return Lengths(most=most, mean=tokens, mean_square=tokens * tokens, scale=math.inf)
    low, high = 1e-3, 100.0 * most
    for _ in range(_HALVINGS):
        scale = (low + high) / 2
        low, high = (scale, high) if _mean(scale, most) < mean else (low, scale)
    cut = math.exp(-most / low)
    square = 2 * low * low * (1 - cut * (1 + most / low))
    return Lengths(most=most, mean=mean, mean_square=square, scale=low)


def _mean(scale: float, most: int) -> float:
    return scale * -math.expm1(-most / scale)
