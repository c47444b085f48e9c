"""What a training framework can run."""

from collections.abc import Mapping
from typing import Literal

from planner.core.frozen import frozen


@frozen
class Capabilities:
    """Which layouts a framework can run, whatever they would cost."""

    tensor_parallel: bool
    sequence_parallel: bool
    """Between the matmuls that tensor parallelism divides, tokens are divided in their place."""
    experts_need_sequence_parallel: bool
    """A mixture divided by tensors runs with sequence parallelism alone."""
    pipeline_schedules: Mapping[str, str]
    """What it calls each of `planner.domain.strategy.PipelineSchedule`; none: it has no pipelines."""
    virtual_stages: bool
    """A rank may hold several stages of a pipeline."""
    context_parallel: bool
    """Tokens of one sequence are divided through attention, too: ring attention or Ulysses."""
    expert_parallel: bool
    folds_experts: bool
    """Groups of expert parallelism may span tensor-parallel ranks."""
    zero_with_pipeline: int
    """The highest ZeRO stage that goes with pipelines."""
    hybrid_shard: bool
    """Sharding within groups of ranks that replicate each other: HSDP."""
    local_sgd: bool
    replicates_with_tensor_parallel: bool
    """Parameters divided by tensor parallelism may be replicated without ZeRO, as by DDP."""
    replicates_key_values: bool
    """Several tensor-parallel ranks may hold the same key-value head."""
    recompute: tuple[str, ...]
    """Values of a strategy's `recompute` that it has."""
    recompute_modules: tuple[str, ...]
    """Modules of a block that selective recompute can name; none: what is selected is its own choice."""
    losses: tuple[str, ...]
    """Values of a recipe's `loss` that it has."""
    adapter_methods: tuple[Literal["lora", "qlora"], ...]
    """How it trains adapters beside frozen weights, as they are and quantised; none: it trains all weights."""
    adapters_with: tuple[Literal["tensor", "expert"], ...]
    """What may divide frozen weights that adapters stand beside; all else may anywhere."""
    keeps_adapter_outputs_whole: bool
    """Every tensor-parallel rank has the whole second matrix of an adapter beside a matrix cut by its inputs."""
    deals_layers: bool
    """A user may say how many layers each stage of a pipeline holds."""
    zero_by_flag: int
    """The ZeRO stage that takes no more than a flag beside DDP, of its own data parallelism; 0: none does."""
    changes_model: tuple[str, ...]
    """Techniques (tensor, pipeline, context, expert) that take changes of the model's own code."""
    version: str
    """Release, or commit, that was looked at."""
    date: str
    """When that was; year-month-day."""
    source: str
