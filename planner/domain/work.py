"""What the kernels of an operation move through memory, its matmuls left out."""

from planner.core.frozen import frozen


@frozen
class Work:
    """Bytes per token that an operation's kernels move in eager PyTorch, by `planner.domain.kept.Numerics`."""

    forward: tuple[float, ...]
    """The last entry serves the numerics beyond it, as in backward."""
    backward: tuple[float, ...]

    def __add__(self, other: "Work") -> "Work":
        """Return both, of operations that are counted in as many numerics."""
        return Work(
            forward=tuple(a + b for a, b in zip(self.forward, other.forward, strict=True)),
            backward=tuple(a + b for a, b in zip(self.backward, other.backward, strict=True)),
        )

    def scaled(self, times: float) -> "Work":
        """Return it for so many times the tokens."""
        return Work(
            forward=tuple(times * each for each in self.forward),
            backward=tuple(times * each for each in self.backward),
        )

    def in_numerics(self, numerics: int) -> tuple[float, float]:
        """Return the bytes of forward and of backward under those numerics."""
        at = min(numerics, len(self.forward) - 1)
        return self.forward[at], self.backward[at]
