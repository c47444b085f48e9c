"""How a command line or a file divides a model: Megatron's, torchtitan's, accelerate's and DeepSpeed's sizes."""

from collections.abc import Iterator

from planner.configs.found import (
    ACCELERATE,
    DEEPSPEED,
    LAUNCH,
    MEGATRON,
    TORCHTITAN,
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


def size(setting: Setting | None) -> int:
    """Return a degree: 1 where none is given, or none that is a positive number."""
    return max(1, setting.whole or 1) if setting is not None else 1


_PARALLELISM = {
    "tensor": "parallelism_config_tp_size",
    "context": "parallelism_config_cp_size",
    "sequence": "parallelism_config_sp_size",
    "replicas": "parallelism_config_dp_replicate_size",
    "shards": "parallelism_config_dp_shard_size",
}
_KEYS = {
    MEGATRON: {
        "tensor": "tensor_model_parallel_size",
        "pipeline": "pipeline_model_parallel_size",
        "context": "context_parallel_size",
        "expert": "expert_model_parallel_size",
    },
    TORCHTITAN: {
        "tensor": "parallelism.tensor_parallel_degree",
        "pipeline": "parallelism.pipeline_parallel_degree",
        "context": "parallelism.context_parallel_degree",
        "expert": "parallelism.expert_parallel_degree",
        "replicas": "parallelism.data_parallel_replicate_degree",
        "shards": "parallelism.data_parallel_shard_degree",
    },
    ACCELERATE: {name: f"parallelism_config.{key}" for name, key in _PARALLELISM.items()},
    LAUNCH: _PARALLELISM,
    DEEPSPEED: {"tensor": "tensor_parallel.autotp_size", "sequence": "sequence_parallel_size"},
}
_DIVIDES = (MEGATRON, TORCHTITAN)
"""Tools whose files are of a division, even where they give no size."""


def sizes(setup: Setup) -> Iterator[Sizes]:
    """Yield what each file says of how the model is divided."""
    for kinds in ((MEGATRON,), (TORCHTITAN,), (ACCELERATE, LAUNCH), (DEEPSPEED,)):
        for found in setup.of(*kinds):
            keys = _KEYS[found.kind]
            each = Sizes(found=found, **{name: found.get(key) for name, key in keys.items()})
            if each.given or found.kind in _DIVIDES:
                yield each
