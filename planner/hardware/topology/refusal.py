"""The error of every reader in this package."""

from planner.core.errors import InvalidInputError

_HINT = "paste the whole output of `nvidia-smi topo -m`"


def refusal(message: str, hint: str = _HINT) -> InvalidInputError:
    """Return the error for a topology that cannot be read: what is wrong with it, and where."""
    return InvalidInputError(message, hint=hint, field="cluster.topology")
