"""How a command line or a file divides a model: Megatron's, torchtitan's, accelerate's and DeepSpeed's sizes."""

from collections.abc import Iterator

from planner.configs.found import (
    ACCELERATE,
    DEEPSPEED,
    LAUNCH,
    MEGATRON,
    TORCHTITAN,
    TRAINER,
    Found,
    Setting,
    Setup,
)
from planner.core.frozen import frozen


@frozen
class Sizes:
    """The degrees that one file gives, each with its setting where it has one."""

    found: Found
    tensor: Setting | None = None
    pipeline: Setting | None = None
    context: Setting | None = None
    expert: Setting | None = None
    expert_tensor: Setting | None = None
    replicas: Setting | None = None
    shards: Setting | None = None
    sequence: Setting | None = None
    """Ulysses: sequences divided, heads exchanged."""

    @property
    def model_parallel(self) -> int:
        """Return how many GPUs hold one copy of the model's layers."""
        return size(self.tensor) * size(self.pipeline) * size(self.context) * size(self.sequence)

    @property
    def given(self) -> tuple[Setting, ...]:
        """Return what is given, in the order of the fields."""
        of_all = (
            self.tensor,
            self.pipeline,
            self.context,
            self.sequence,
            self.replicas,
            self.shards,
        )
        return tuple(each for each in of_all if each is not None)

    @property
    def is_unread(self) -> bool:
        """Return whether only the run knows one of these, and with it their product."""
        return any(each.is_unread for each in self.given)


def size(setting: Setting | None) -> int:
    """Return a degree: 1 where none is given, or none that is a positive number."""
    return max(1, setting.whole or 1) if setting is not None else 1


_AXES = (
    *("tensor", "pipeline", "context", "expert", "expert_tensor"),
    *("replicas", "shards", "sequence"),
)
_DIVIDES = (MEGATRON, TORCHTITAN)
"""Tools whose files are of a division, even where they give no size."""


def sizes(setup: Setup) -> Iterator[Sizes]:
    """Yield what each file says of how the model is divided."""
    for kinds in ((MEGATRON,), (TORCHTITAN,), (TRAINER,), (ACCELERATE, LAUNCH), (DEEPSPEED,)):
        for found in setup.of(*kinds):
            each = Sizes(found=found, **{name: found.get(f"axes.{name}") for name in _AXES})
            if each.given or found.kind in _DIVIDES:
                yield each
