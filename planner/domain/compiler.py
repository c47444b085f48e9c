"""What torch.compile does to a framework's models: data of its record."""

from planner.core.frozen import frozen


@frozen
class Compile:
    """What torch.compile leaves of elementwise work."""

    is_estimated: bool
    passes_fraction: float = 1.0
    """Share of the passes over memory that remain of elementwise work once it is fused."""
    passes: tuple[float, float] = (0.0, 0.0)
    """Passes over what compiled parts keep, forward and backward, where eager kernels are counted one by one."""
    keeps_operands_alone: bool = False
    """Backward computes again what lies between matmuls, as AOTAutograd's partition has it."""
    operations_fraction: float
    """Share of the operations that the host still launches."""
    covers_head: bool
    """The head and the loss are compiled as the blocks are."""
    covers_whole: bool = False
    """A model that is neither sharded nor recomputed is compiled as one graph, the head and the loss in it."""
    loss_bytes_per_logit: tuple[float, float] = (0.0, 0.0)
    """Around a compiled loss, in its forward and in its backward; 0 where it is as the loss that is not."""
    moved_bytes_per_logit: float = 0.0
    """That cross HBM around it, forward and backward."""
    padded_bytes_per_logit: float = 0.0
    """More, where rows of logits are not aligned: what the head's three matmuls read is copied to rows that are."""
    source: str
