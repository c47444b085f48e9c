"""Values of flags, of which click takes too many."""

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A float within bounds; click's own range lets nan pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or end the command where it is nan or infinite."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number.", param, ctx)
        return number


class GpuNumber(click.types.IntParamType):
    """How many GPUs; a number with their name is another flag's."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or end the command with what was meant."""
        from planner.hardware.mixed_gpus import is_list

        if isinstance(value, str) and is_list(value):
            self.fail(f"{value!r} names the GPUs too: write --gpu {value}.", param, ctx)
        return super().convert(value, param, ctx)


class NamedPath(click.Path):
    """A path of what is written; click's own takes an empty one, which is the folder that one is in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or end the command where it has no name."""
        if not str(value).strip():
            self.fail("it is empty; name what is to be written, such as plan.", param, ctx)
        return super().convert(value, param, ctx)
