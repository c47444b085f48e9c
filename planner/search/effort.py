"""What a layout costs beside its time: work that people have with it, and what its estimate leaves out."""

import numpy as np

from planner.catalog.choice import prices
from planner.core.term import Amount
from planner.domain.dimensions import DIMENSIONS, Dimension
from planner.domain.job import Job
from planner.domain.strategy import ZERO_2, Strategy


def technique_price(job: Job, dimension: Dimension) -> float:
    """Return the share of a step by which a technique must be faster in the job's framework.

    Nothing where it is a flag there. Source: `data/calibration/choice.toml`, by the framework record's
    capabilities, changes_model.
    """
    is_changing = dimension.name in job.framework.capabilities.changes_model
    return prices().code_change if is_changing else 0.0


def effort_factor(job: Job, s: Strategy) -> Amount:
    """Return what a step time counts for, beside that of the simplest layout.

        factor = product of (1 + price) over what the layout uses

    Args:
        job: supplies the framework and the nodes.
        s: one layout or a table.
    """
    factor: Amount = 1.0
    for dimension in DIMENSIONS:
        factor = factor * np.where(s.uses(dimension), 1 + technique_price(job, dimension), 1.0)
    return factor * (1 + prices().wide_shards_per_doubling * _doublings(job, s))


def _doublings(job: Job, s: Strategy) -> Amount:
    """Return how often the ranks double that gather parameters over the network; those of a sequence share them too."""
    context = np.asarray(s.context_parallel_size)
    leaves_node = s.data_parallel_shard_size * context > job.cluster.gpus_per_node
    is_wide = (np.asarray(s.zero_stage) >= ZERO_2) & leaves_node
    ranks = s.data_parallel_size * context / prices().wide_shards_from_ranks
    return np.where(is_wide, np.log2(np.maximum(ranks, 1)), 0.0)
