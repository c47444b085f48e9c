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


def sizes(setup: Setup) -> Iterator[Sizes]:
    """Yield what each file says of how the model is divided."""
    for found in setup.of(MEGATRON):
        yield Sizes(
            found=found,
            tensor=found.get("tensor_model_parallel_size"),
            pipeline=found.get("pipeline_model_parallel_size"),
            context=found.get("context_parallel_size"),
            expert=found.get("expert_model_parallel_size"),
        )
    for found in setup.of(TORCHTITAN):
        yield Sizes(
            found=found,
            tensor=found.get("parallelism.tensor_parallel_degree"),
            pipeline=found.get("parallelism.pipeline_parallel_degree"),
            context=found.get("parallelism.context_parallel_degree"),
            expert=found.get("parallelism.expert_parallel_degree"),
            replicas=found.get("parallelism.data_parallel_replicate_degree"),
            shards=found.get("parallelism.data_parallel_shard_degree"),
        )
    for found in setup.of(ACCELERATE, LAUNCH):
        prefix = "parallelism_config." if found.kind == ACCELERATE else ""
        found_sizes = Sizes(
            found=found,
            tensor=_of_accelerate(found, prefix, "tp_size"),
            context=_of_accelerate(found, prefix, "cp_size"),
            sequence=_of_accelerate(found, prefix, "sp_size"),
            replicas=_of_accelerate(found, prefix, "dp_replicate_size"),
            shards=_of_accelerate(found, prefix, "dp_shard_size"),
        )
        if found_sizes.given:
            yield found_sizes
    for found in setup.of(DEEPSPEED):
        tensor, sequence = (
            found.get("tensor_parallel.autotp_size"),
            found.get("sequence_parallel_size"),
        )
        if tensor is not None or sequence is not None:
            yield Sizes(found=found, tensor=tensor, sequence=sequence)


def _of_accelerate(found: Found, prefix: str, name: str) -> Setting | None:
    return found.get(f"{prefix}parallelism_config_{name}")
