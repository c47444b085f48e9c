"""How much a framework collects before it exchanges it."""

from planner.core.frozen import frozen


@frozen
class Buckets:
    """The pieces in which gradients are reduced beside backward, where a block is not one; each has at least so much."""

    elements: float
    """Gradients of one, and the length of the flat buffer that DeepSpeed's stages allocate for it."""
    elements_per_rank: float
    """The same for each data-parallel rank, where that makes more."""
    bytes: float
    """The least of one, where that is more."""
    first_bytes: float
    """Of the first, which is full sooner; 0 where it is as the others."""
    source: str
