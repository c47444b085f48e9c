"""Which targets can have some of a stage's layers differ from the others: recompute, or wait in host memory."""

import numpy as np

from planner.core.term import Truth
from planner.domain.breach import Breach
from planner.domain.strategy import ALL_LAYERS, Recompute, Strategy
from planner.targets.base import refusal

_FIELD = "strategy.recompute_layers"


def all_or_none(s: Strategy) -> Breach:
    """Return why files that recompute all layers alike refuse a number of them."""
    return refusal(
        _is_some(s),
        "its files recompute all layers or none",
        _FIELD,
        hint="leave --recompute-layers out",
    )


def whole_stages(s: Strategy) -> tuple[Breach, ...]:
    """Return why Megatron-LM refuses a number of layers.

    Source: Megatron-LM core/transformer/transformer_block.py, recompute_method block: it counts the layers of each
    chunk; transformer_config.py: recompute_num_layers must be None for selective.
    """
    return (
        refusal(
            _is_some(s) & (np.asarray(s.recompute) != Recompute.FULL),
            "a number of layers goes with full recompute alone",
            _FIELD,
            hint="--recompute full",
        ),
        refusal(
            _is_some(s) & (np.asarray(s.virtual_pipeline_size) > 1),
            "it counts the layers of each chunk of a stage, not of the stage",
            _FIELD,
            hint="--virtual-stages 1",
        ),
    )


def undivided(s: Strategy) -> Breach:
    """Return why the script of PyTorch alone refuses a number of layers."""
    return refusal(
        np.asarray(s.divides_model) & _is_some(s),
        "a model in parts recomputes all layers of a part or none",
        _FIELD,
        hint="leave --recompute-layers out",
    )


def on_gpu(s: Strategy) -> Breach:
    """Return why no files keep activations in host memory."""
    return refusal(
        np.asarray(s.activation_offload_layers) > 0,
        "activations stay on the GPU in the files that are written",
        "strategy.activation_offload_layers",
        hint="leave --activation-offload-layers out",
    )


def _is_some(s: Strategy) -> Truth:
    is_some: Truth = np.asarray(s.recompute_layers) < ALL_LAYERS
    return is_some
