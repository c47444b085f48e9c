"""What a layout costs a person: how many of its techniques change the model's code."""

import numpy as np

from planner.core.term import Amount
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import Job
from planner.domain.strategy import Strategy

GAIN_PER_CHANGE = 0.10
"""How much faster a step must be for each technique that changes the model, to be worth it.

Judgement: a tenth of the time pays for a day of work within two weeks of training, and is about what
an estimate of a step can tell apart.
"""


def num_code_changes(job: Job, s: Strategy) -> Amount:
    """Return how many techniques of a layout take changes of the model in the job's framework.

    Source: the framework record's capabilities, changes_model.
    """
    changing = job.framework.capabilities.changes_model
    return sum(
        np.where(s.uses(dimension), 1, 0) for dimension in DIMENSIONS if dimension.name in changing
    )


def code_change_factor(techniques: Amount) -> Amount:
    """Return what a step time counts for, beside that of a layout that changes nothing.

    factor = (1 + THRESHOLD) ** techniques
    """
    return (1 + GAIN_PER_CHANGE) ** np.asarray(techniques, dtype=float)
