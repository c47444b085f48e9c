"""A search for the constants that make a loss small: coarse first, then step by step."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product

_FIRST_STEP, _LAST_STEP, _WORTH_ANOTHER_ROUND = 0.15, 0.01, 2e-4

Constants = Mapping[str, float]


def search(
    loss: Callable[[Constants], float],
    coarse: Mapping[str, Sequence[float]],
    earlier: Constants | None = None,
) -> Constants:
    """Return the constants of the least loss, by a pattern search over logarithms.

    It is local, and constants stand in for each other: so it begins at the best of all coarse values against all and of
    what was found before, and once more, with large steps, where it ended.

    Args:
        loss: of some constants.
        coarse: values of each, between which the loss may have a ridge.
        earlier: what a search of the same constants found, of runs or a model that have changed since.
    """
    starts = [dict(zip(coarse, values, strict=True)) for values in product(*coarse.values())]
    starts += [dict(earlier)] if earlier is not None and earlier.keys() == coarse.keys() else []
    losses = [loss(start) for start in starts]
    best = starts[losses.index(min(losses))]
    for _ in range(2):
        best = _descended(loss, best)
    return best


def _descended(loss: Callable[[Constants], float], start: Mapping[str, float]) -> dict[str, float]:
    best, least, step = dict(start), loss(start), _FIRST_STEP
    while step > _LAST_STEP:
        before = least
        for name, factor in product(start, (1 + step, 1 / (1 + step))):
            move = best | {name: best[name] * factor}
            moved = loss(move)
            if moved < least:
                best, least = move, moved
        if before - least < _WORTH_ANOTHER_ROUND:
            step /= 2
    return best
