"""What DeepSpeed's ZeRO cannot run, behind whatever trains."""

import numpy as np

from planner.domain.breach import Breach
from planner.domain.strategy import ZERO_3, Offload, Recompute, Strategy
from planner.targets.base import refusal


def zero(s: Strategy) -> tuple[Breach, ...]:
    """Return why DeepSpeed's ZeRO cannot run a layout."""
    stage, offload = np.asarray(s.zero_stage), np.asarray(s.offload)
    return (
        refusal(
            (stage > 0) & (s.data_parallel_replicate_size > 1),
            "ZeRO shards over all data-parallel GPUs, without replicas",
        ),
        refusal(
            np.asarray(s.recompute) == Recompute.SELECTIVE,
            "transformers recomputes whole blocks or nothing",
        ),
        refusal(
            (offload != Offload.NONE) & (stage == 0),
            "DeepSpeed offloads what ZeRO shards, and here nothing is sharded",
        ),
        refusal(
            s.offloads_parameters & (stage < ZERO_3),
            "DeepSpeed offloads parameters with ZeRO-3 alone",
        ),
        refusal(s.is_local, "it averages gradients every step"),
    )
