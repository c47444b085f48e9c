"""The ways to divide a model over GPUs; without numpy, so that the command line may ask."""

from planner.core.frozen import frozen


@frozen
class Dimension:
    """A parallel dimension of a layout, beside data parallelism."""

    name: str
    short_name: str
    """In families, sizes and flags."""
    is_of_data: bool = False
    """Whether its ranks are those of data and context parallelism once more, none of its own."""

    @property
    def field(self) -> str:
        """Return the field of a strategy that holds its size."""
        return f"{self.name}_parallel_size"


DIMENSIONS = (
    Dimension(name="tensor", short_name="tp"),
    Dimension(name="pipeline", short_name="pp"),
    Dimension(name="context", short_name="cp"),
    Dimension(name="expert", short_name="ep", is_of_data=True),
)
