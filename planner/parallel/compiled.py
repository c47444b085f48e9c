"""What of a model runs through torch.compile as one graph: its blocks alone, or the head and the loss with them."""

import numpy as np

from planner.core.term import Truth
from planner.domain.job import Job
from planner.domain.strategy import Recompute, Strategy


def compiles_head(job: Job, s: Strategy) -> Truth:
    """Return whether the head and the loss are compiled: always, or where the whole model is one graph.

    A model is compiled as a whole where every rank holds all of it and repeats none of it; blocks that are gathered
    or recomputed are compiled one by one, and so is a model whose loss comes in chunks, whose weights are frozen, or
    whose gradients are stepped one by one: one graph hands on all of them as it ends.
    Source: the framework record's compile section.
    """
    record, recipe = job.framework.compile, job.recipe
    if not recipe.compile or record.covers_head:
        return recipe.compile
    is_plain = job.loss is None and recipe.lora is None and not recipe.optimizer_in_backward
    if not record.covers_whole or not is_plain:
        return False
    is_whole = np.asarray(s.zero_stage) < job.framework.sharding.parameters_sharded_from
    is_divided = np.asarray(s.divides_model)
    compiled: Truth = is_whole & ~is_divided & (np.asarray(s.recompute) == Recompute.NONE)
    return compiled
