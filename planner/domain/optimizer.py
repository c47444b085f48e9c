"""What an optimizer costs per parameter."""

from planner.core.frozen import frozen

ADAMW = ("adamw", "adamw-fused")
"""The implementations of AdamW that any layout is stepped by: PyTorch's default, and the one in one kernel."""


@frozen
class Optimizer:
    """What an optimizer keeps per parameter, and what its step needs beyond that."""

    state_tensors: float
    """States of the size and dtype of the parameters it steps."""
    state_bytes: float = 0
    """States of a size of their own, bytes per parameter."""
    outer_state_tensors: float | None = None
    """As `state_tensors`, of what is no matrix of a block; None for the same."""
    is_factored: bool = False
    """A matrix has one state per row and per column in place of one per element."""
    small_elements: float = 0
    """Tensors of fewer elements keep states of `small_state_bytes` per parameter."""
    small_state_bytes: float = 0
    page_link_fraction: float = 0
    """Of the rate of copies to the host, what the pages of states in unified memory move at; 0 where none are paged."""
    temporary_fraction: float = 0
    """Temporaries, as a fraction of the parameters it steps."""
    parts_elements: float = 0
    """A rank that holds a share of the parameters steps so many of them at a time; 0 for all at once."""
    temporary_tensors: float = 0
    """Temporaries of a step that goes tensor by tensor, in sizes of the largest one."""
    passes: float
    """Tensors the size of the parameters that it reads and writes."""
    newton_schulz_steps: int = 0
    """Iterations that make each matrix of a block orthogonal, three matmuls in 16 bit each."""
    source: str

    @property
    def is_paged(self) -> bool:
        """Return whether states lie outside PyTorch's allocator, and give way to what else the card must hold."""
        return self.page_link_fraction > 0
