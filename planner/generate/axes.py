"""The axes of the torchrun script's device mesh."""

import math
from collections.abc import Mapping

from planner.core.frozen import frozen
from planner.generate.run_spec import RunSpec

_CONSTANTS = {
    "pipeline": "PIPELINE_PARALLEL_SIZE",
    "shard": "SHARD_SIZE",
    "context": "CONTEXT_PARALLEL_SIZE",
    "tensor": "TENSOR_PARALLEL_SIZE",
}
"""What the script calls the size of an axis that does not grow with the processes."""


@frozen
class Axes:
    """Sizes by name, outermost first, in the order in which the planner numbers ranks."""

    sizes: Mapping[str, int]
    data: tuple[str, ...]
    """Those along which the data differs; the first grows with the number of processes."""

    @property
    def batch(self) -> tuple[str, ...]:
        """Return those along which the parameters are the same, and the tokens are not."""
        return tuple(name for name in self.sizes if name in (*self.data, "context"))

    @property
    def growing(self) -> str:
        """Return the axis that grows with the number of processes, "" without one."""
        return self.data[0] if self.data else ""

    @property
    def fixed_ranks(self) -> int:
        """Return the product of the other sizes."""
        return math.prod(size for name, size in self.sizes.items() if name != self.growing)

    @property
    def names_in_code(self) -> str:
        """Return the tuple of names, as Python."""
        return _tuple([f'"{name}"' for name in self.sizes])

    @property
    def sizes_in_code(self) -> str:
        """Return the tuple of sizes, as Python: the growing one is a variable of its name."""
        return _tuple([_CONSTANTS.get(name, name) for name in self.sizes])


def axes(spec: RunSpec) -> Axes:
    """Return the axes of a plan that divides its model; those of size 1 are left out."""
    replicas, shards = spec.data_parallel_replicate_size, spec.data_parallel_shard_size
    if replicas > 1 and spec.zero_stage > 0:
        data = {"replicate": replicas, "shard": shards}
    elif replicas * shards > 1 or spec.zero_stage > 0:
        data = {"data": replicas * shards}
    else:
        data = {}
    around = {
        "pipeline": spec.pipeline_parallel_size,
        **data,
        "context": spec.context_parallel_size,
        "tensor": spec.tensor_parallel_size,
    }
    sizes = {name: size for name, size in around.items() if size > 1 or name in data}
    return Axes(sizes=sizes, data=tuple(data))


def _tuple(parts: list[str]) -> str:
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
