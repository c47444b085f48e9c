"""What the planner knows of a cloud instance."""

from dataclasses import asdict
from typing import Any

from planner.domain.cluster import Instance


def answer_instance(instance: Instance) -> dict[str, Any]:
    """Return what the planner knows of a cloud instance; what is not known is null."""
    described = asdict(instance)
    # Wiring may be empty and still known: that of the GPU's own record.
    filled = {"intra_node", "topology", "wiring", "notes"}
    return {key: value if value or key in filled else None for key, value in described.items()}
