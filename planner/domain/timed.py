"""What was timed on a user's own machine, in place of what is known of its kind."""

from collections.abc import Collection

import numpy as np

from planner.core.frozen import frozen
from planner.domain.model import Attention

FLASH_BACKWARD = 2.5
"""Flash attention's backward computes the scores again: 5 matmuls against forward's 2."""


@frozen
class TimedAttention:
    """Shares of the dense peak that fused attention reached, by the length of its sequences."""

    dtype: str
    is_causal: bool
    head_size: int
    sequence_lengths: tuple[int, ...]
    """In ascending order."""
    forward: tuple[float, ...]
    backward: tuple[float, ...]


@frozen
class TimedCollective:
    """Seconds of one operation among so many ranks, by the bytes of the whole tensor."""

    operation: str
    """A name of `planner.collectives.operations`: all_reduce, all_gather, reduce_scatter, all_to_all or send."""
    ranks: int
    ranks_in_node: int
    sizes_bytes: tuple[float, ...]
    """In ascending order."""
    seconds: tuple[float, ...]
    slowdown: float | None = None
    """Seconds that compute beside it loses per second of it; None where that was not measured."""


def timed_share(
    timed: Collection[TimedAttention],
    dtype: str,
    attention: Attention,
    sequence_length: int,
    *,
    is_backward: bool,
) -> float:
    """Return the share of the peak that such attention reached, between the timed lengths; 0 where none was timed."""
    for curve in timed:
        heads = (curve.dtype, curve.head_size, curve.is_causal)
        if heads == (dtype, attention.head_dim, attention.is_causal):
            shares = curve.backward if is_backward else curve.forward
            lengths = np.log(curve.sequence_lengths)
            return float(np.interp(np.log(sequence_length), lengths, shares))
    return 0.0
