"""How many tokens per optimizer step models of a size are trained with."""

import numpy as np

from planner.catalog import records


def usual_tokens_per_step(parameters: int) -> int:
    """Return the batch that models of as many parameters were pre-trained with, in tokens.

    log(tokens) between the published points, by log(parameters); the end points beyond them.

    Source: `data/calibration/batches.toml`.
    Leaves out: the data and the loss, which set the critical batch (McCandlish et al.,
    arXiv:1812.06162); fine-tuning, which uses less.
    """
    known, tokens = np.log(np.array(records.usual_batches(), dtype=float)).T
    return round(float(np.exp(np.interp(np.log(max(1, parameters)), known, tokens))))
