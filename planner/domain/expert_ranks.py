"""Over how many ranks an expert of a mixture is divided, where nobody says."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Ranks: TypeAlias = int | NDArray[np.signedinteger]


def folded_ranks_per_expert(tensor: _Ranks, others: _Ranks, expert: _Ranks) -> _Ranks:
    """Return over how many tensor-parallel ranks an expert is divided: as many as its group leaves.

        gcd(t, t * o / e), t where e does not divide t * o

    Notation: t, e ranks of tensor and expert parallelism; o of context times data parallelism. Experts are dealt
    over context and data first, and over tensor-parallel ranks as far as those do not suffice: such a rank holds
    whole experts in place of a share of each. Fewer that are given (`expert_tensor_parallel_size`) leave whole
    experts to more of them, and more ranks hold the same one.
    Source: Megatron-LM core/parallel_state.py, --expert-tensor-parallel-size; Liu et al., MoE parallel folding,
    arXiv:2504.14960.

    Args:
        tensor: tensor-parallel ranks.
        others: context x data-parallel ranks.
        expert: expert-parallel ranks.
    """
    if np.all(np.equal(expert, 1)):
        return tensor
    per_expert, rest = np.divmod(tensor * others, np.maximum(expert, 1))
    shared = np.gcd(tensor, np.maximum(per_expert, 1))
    found: _Ranks = np.where(rest == 0, shared, tensor)
    return found
