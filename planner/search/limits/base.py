"""What a limit is: a reason why a layout cannot run, or why the search does not propose it."""

import math
from collections.abc import Callable

import numpy as np

from planner.core.documented import documentation, shown_name
from planner.core.frozen import frozen
from planner.core.term import Truth
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import Strategy, Whole, divisors


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


def attention_heads(job: Job) -> int:
    """Return the attention heads that all blocks' are multiples of."""
    return math.gcd(*(p.attention.num_heads for p in job.model.blocks if p.attention)) or 1


def key_value_heads(job: Job) -> int:
    """Return the key-value heads that all blocks' are multiples of."""
    return (
        math.gcd(*(p.attention.num_key_value_heads for p in job.model.blocks if p.attention)) or 1
    )


def tensor_sizes(job: Job) -> str:
    """Return the tensor parallel sizes that no limit of heads or of nodes refuses."""
    shared, node = key_value_heads(job), job.cluster.joined_gpus
    is_able = job.framework.capabilities.replicates_key_values
    *others, last = (
        f"{size:,}"
        for size in divisors(attention_heads(job))
        if (shared % size == 0 or (is_able and size % shared == 0))
        and (not job.cluster.needs_network or node % size == 0)
    )
    return f"{', '.join(others)} or {last}" if others else last


def context_sizes(job: Job, s: Strategy) -> Whole:
    """Return the number whose divisors no limit of pieces or of heads refuses as context parallel sizes."""
    length = job.recipe.sequence_length
    pieces: Whole = 1 if length % 2 else length // 2
    if job.framework.context_parallel.exchange != "all_to_all":
        return pieces
    tensor = np.maximum(s.tensor_parallel_size, 1)
    return np.gcd(pieces, np.maximum(np.floor_divide(attention_heads(job), tensor), 1))
