"""What the planner knows of a model, and of a cloud instance."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from planner.domain.cluster import Instance
from planner.domain.model import Model

if TYPE_CHECKING:
    from planner.answers.shapes import ModelAnswer


def answer_model(model: Model) -> ModelAnswer:
    """Return what the planner knows of a model."""
    return {
        "name": model.name,
        "model_type": model.model_type,
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        "largest_layer_parameters": model.largest_layer_parameters,
        "flops_per_token_forward": model.flops_per_token(model.max_position_embeddings),
        "parts": [
            {
                "name": part.name,
                "count": part.count,
                "parameters": part.parameters,
                "linears": [asdict(linear) for linear in part.linears],
            }
            for part in model.parts
        ],
    }


def answer_instance(instance: Instance) -> dict[str, Any]:
    """Return what the planner knows of a cloud instance; what is not known is null."""
    described = asdict(instance)
    # Wiring may be empty and still known: that of the GPU's own record.
    filled = {"intra_node", "topology", "wiring", "notes"}
    return {key: value if value or key in filled else None for key, value in described.items()}
