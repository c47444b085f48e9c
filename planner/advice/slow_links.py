"""Which layouts divide matrices or sequences over a link that is not NVLink: every layer waits for it."""

import numpy as np

from planner.core.term import Truth
from planner.domain.job import Job
from planner.domain.strategy import Strategy


def crosses_slow_link(job: Job, s: Strategy) -> Truth:
    """Return whether ranks of a node that share a matrix or a sequence are joined by less than NVLink.

    Sequences that are divided over nodes are not meant: those are too long for one.

    Args:
        job: supplies the node's links.
        s: one layout or a table.
    """
    tensor, context = np.asarray(s.tensor_parallel_size), np.asarray(s.context_parallel_size)
    in_node = np.minimum(context, np.maximum(1, job.cluster.joined_gpus // tensor))
    return _slow(job, tensor, np.ones_like(tensor)) | _slow(job, in_node, tensor)


def _slow(job: Job, ranks: np.ndarray, strides: np.ndarray) -> Truth:
    width = int(strides.max(initial=0)) + 1
    keys = ranks * width + strides
    counts = np.bincount(keys.ravel())
    slow = np.zeros(len(counts), dtype=bool)
    for key in np.flatnonzero(counts):
        n, stride = divmod(int(key), width)
        slow[key] = n > 1 and not job.cluster.link(n, stride).is_fast
    found: Truth = slow[keys]
    return found
