"""How far estimates in a framework may be off."""

from collections.abc import Mapping

from planner.core.frozen import frozen


@frozen
class Uncertainty:
    """Half-widths of the low-high ranges, as fractions, by what an amount hangs on."""

    compute: float
    """Of matmuls and attention, beside their curve's own error."""
    memory_bound: float
    host: float
    """How much slower a host may launch than the record's."""
    communication: Mapping[str, float]
    """By the link's provenance: measured, derived or assumed."""
    offload: float
    adapters: float
    """Of matmuls and attention beside frozen weights."""
    unknown_release: float
    """Of the whole step, where no release is named or none of that name is known."""
    named_release: float
    """Of the whole step, of a release that was timed by itself."""
    kind: float
    """Share of what the kind of a job may be off by that stands; less where runs of the user's own machine are known."""
    memory: float
    slower_factor: float
    """How much further a step's range reaches up than down."""
    source: str
