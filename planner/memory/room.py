"""How much of a card is to be taken: what leaves it room, and paged states, which give way to all else."""

import numpy as np

from planner.core.term import NOTHING, Amount, Expression, either, size
from planner.core.units import MIB
from planner.domain.job import Job

COMFORTABLE_FRACTION = 0.92
"""Share of the usable memory above which the allocator starts to retry and throughput falls.

TensorAuto/OpenTau#273: 7.0, 6.2, 4.9 samples/s as the reserved share passes 91, 98 and 97 %.
"""
_PAGE_BYTES = 2 * MIB


def states_on_card(job: Job, states: Expression, rest: Amount) -> Expression:
    """Return the bytes of paged states that the card has room for beside the rest: those are as without paging.

        min(states, comfortable share * usable - rest)

    The step alone touches them, so what forward and backward need drives the others out to the host. They are
    planned to leave the room that a card should have: pages that fill it go as soon as anything else asks.
    Source: bitsandbytes 0.50, docs/source/explanations/optimizers.mdx, Paged optimizers.
    Leaves out: tensors under 100,000 elements and the constants of blocks, which are not paged.
    """
    if states is NOTHING:
        return NOTHING
    room = COMFORTABLE_FRACTION * job.usable_bytes - rest
    room = np.maximum(0.0, room // _PAGE_BYTES * _PAGE_BYTES)
    return either(states.value <= room, states, size(room, "that is left on the card"))
