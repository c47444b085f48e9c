"""What of a linear's matmul a rank computes for the tokens that it sees."""

from typing import NamedTuple

import numpy as np

from planner.core.term import Amount
from planner.domain.model import Linear
from planner.domain.strategy import Strategy


class LocalMatmul(NamedTuple):
    """C[rows, columns] = A[rows, depth] B[depth, columns], so many times."""

    times: Amount
    """One per expert of the rank, where there are several."""
    rows: Amount
    columns: Amount
    depth: Amount

    @property
    def inputs(self) -> Amount:
        """Return the elements of all inputs."""
        return self.times * self.rows * self.depth


def local_matmul(s: Strategy, layer: Linear, seen: Amount) -> LocalMatmul:
    """Return a linear's matmul in forward on one rank.

        E / e times T * u * k * e / E rows

    with the inputs (row-parallel) or outputs (column-parallel) divided by min(t, most_splits), or of
    experts by the x of the t ranks that share each, which see x / t of the tokens.
    Notation: t tensor and e expert parallel size; E num_experts; k experts_per_token; T as `seen`;
    u tokens that the linear sees for each of the part's.
    """
    is_routed = layer.num_experts > 1
    sharing = s.ranks_per_expert if is_routed else s.tensor_parallel_size
    split = np.minimum(sharing, layer.most_splits)
    local = layer.num_experts / (s.expert_parallel_size if is_routed else 1)
    return LocalMatmul(
        times=local,
        # Ranks that hold whole experts take turns with the tokens that they have in common.
        rows=seen
        * layer.per_token
        * layer.experts_per_token
        / local
        * (sharing / s.tensor_parallel_size),
        columns=layer.out_features / (1 if layer.cuts_inputs else split),
        depth=layer.in_features / (split if layer.cuts_inputs else 1),
    )
