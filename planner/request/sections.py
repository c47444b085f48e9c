"""What a request says of the run and of its layout: two sections of the wire schema."""

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from planner.domain.strategy import PipelineSchedule
from planner.request.cluster import WireModel
from planner.request.lora import LoraRequest

_MOST_LAYERS = 2**12
"""Of a model that is dealt to stages by hand."""
_DEALT = re.compile(r" ?[0-9]{1,4}(?: ?[,+] ?[0-9]{1,4}){1,4095} ?")


class RecipeRequest(WireModel):
    """The training run, independent of its layout."""

    sequence_length: int | None = Field(default=None, ge=1, le=2**24)
    global_batch_size: int | None = Field(default=None, ge=1, le=2**24)
    global_batch_tokens: int | None = Field(default=None, ge=1, le=2**40)
    """In place of the size in sequences; the nearest that the GPUs divide is taken."""
    precision: Literal["fp32", "tf32", "fp16-mixed", "bf16-mixed", "bf16", "fp8"] | None = None
    fp8_recipe: Literal["tensorwise", "rowwise", "blockwise", "mxfp8"] | None = None
    """How operands of matmuls in fp8 are scaled; None: as the framework does."""
    optimizer: str | None = Field(default=None, max_length=40)
    """None for AdamW, in one kernel where the framework's scripts have that."""
    method: Literal["full", "lora", "qlora"] = "full"
    lora: LoraRequest | None = None
    weights_dtype: Literal["config", "fp32"] | None = None
    attention: Literal["eager", "sdpa", "flash"] | None = None
    """None for PyTorch's fused kernels, or the eager one of models that transformers has no other for."""
    loss: Literal["standard", "chunked", "fused"] = "standard"
    """How much of the logits exists at once."""
    framework: str = Field(default="torch", max_length=40)
    framework_version: str | None = Field(
        default=None, min_length=1, max_length=60, examples=["2024-08"]
    )
    """Release or date; the nearest known record is taken, and said."""
    gradient_reduce_dtype: Literal["fp32", "bf16"] | None = None
    """What data parallelism exchanges of a gradient's element; None: as the framework does."""
    tensor_parallel_overlap: bool | None = None
    """Exchanges of tensor parallelism travel behind matmuls, in pieces; None: as the framework does."""
    data_parallel_overlap: bool | None = None
    """Gradients are reduced, and parameters gathered, beside compute; None: as the framework does."""
    expert_dispatch: Literal["all-to-all", "once-per-node"] = "all-to-all"
    """A token goes once to each of its experts, or once to each node that has some (DeepEP, HybridEP)."""
    expert_parallel_overlap: bool = False
    """The experts' exchange travels behind other micro-batches' compute."""
    optimizer_in_backward: bool = False
    """Each parameter is stepped as backward reaches it, so that its gradient can go."""
    cuda_graphs: bool = False
    """Layers are launched whole."""
    task: Literal["sequence-classification", "token-classification"] | None = None
    """What to train for; None for the head that the model's config names."""
    compile: bool = False
    packed: bool = True
    """Whether texts follow each other in full sequences; else each is padded."""
    padding_share: float | None = Field(default=None, ge=0, lt=1)
    """Of the tokens of a step, those that are padding."""
    training_tokens: int | None = Field(default=None, ge=1, le=10**18)
    training_samples: int | None = Field(default=None, ge=1, le=10**15)


def _numbers(value: object) -> object:
    """Return the list that 2,3,3,2 stands for, as flags and forms have it, or 2+3+3+2; all else as it is."""
    if not isinstance(value, str) or not _DEALT.fullmatch(value):
        return value
    return [int(each) for each in re.split("[,+]", value)]


_Dealt: TypeAlias = Annotated[
    list[Annotated[int, Field(ge=0, le=_MOST_LAYERS)]], Field(min_length=2, max_length=_MOST_LAYERS)
]
PipelineLayout: TypeAlias = Annotated[
    Literal["loss-aware", "embedding-and-loss-aware"] | _Dealt, BeforeValidator(_numbers)
]
RecomputeModule: TypeAlias = Literal[
    "core_attn", "layernorm", "moe_act", "mlp", "moe", "mla_up_proj", "shared_experts"
]
_LARGEST_SIZE = 2**20
"""Of any size of a layout: the most GPUs that are planned for, and far more of everything else."""


class StrategyRequest(WireModel):
    """A layout: whole for an estimate, a partial wish for a suggestion."""

    data_parallel_size: int | None = Field(default=None, ge=1, le=_LARGEST_SIZE)
    """Replicas x shards."""
    data_parallel_replicate_size: int | None = Field(default=None, ge=1, le=_LARGEST_SIZE)
    data_parallel_shard_size: int | None = Field(default=None, ge=1, le=_LARGEST_SIZE)
    tensor_parallel_size: int = Field(default=1, ge=1, le=_LARGEST_SIZE)
    sequence_parallel: bool = False
    pipeline_parallel_size: int = Field(default=1, ge=1, le=_LARGEST_SIZE)
    virtual_pipeline_size: int = Field(default=1, ge=1, le=_LARGEST_SIZE)
    pipeline_schedule: str = Field(
        default=PipelineSchedule.ONE_FORWARD_ONE_BACKWARD.value, max_length=40
    )
    pipeline_layout: PipelineLayout | None = None
    """Blocks of each stage, chunk by chunk, or what counts as one beside them; None: as the framework deals them."""
    context_parallel_size: int = Field(default=1, ge=1, le=_LARGEST_SIZE)
    expert_parallel_size: int = Field(default=1, ge=1, le=_LARGEST_SIZE)
    expert_tensor_parallel_size: int | None = Field(default=None, ge=1, le=_LARGEST_SIZE)
    """Over how many ranks each expert's matrices are divided; None for as many as dealing the experts leaves."""
    zero_stage: int | None = Field(default=None, ge=0, le=3)
    micro_batch_size: int | None = Field(default=None, ge=1, le=_LARGEST_SIZE)
    gradient_accumulation_steps: int | None = Field(default=None, ge=1, le=_LARGEST_SIZE)
    recompute: Literal["none", "selective", "full"] | None = None
    recompute_layers: int | None = Field(default=None, ge=1, le=_LARGEST_SIZE)
    """Of each stage's blocks, how many recompute; None for all."""
    recompute_modules: list[RecomputeModule] = Field(default=[], max_length=20)
    """What recompute="selective" repeats, by Megatron Core's names; none: as the framework does."""
    activation_offload_layers: int = Field(default=0, ge=0, le=_LARGEST_SIZE)
    """Of each stage's blocks, how many keep their activations in host memory."""
    offload: Literal["none", "optimizer", "optimizer+parameters"] = "none"
    synchronize_every: int = Field(default=1, ge=1, le=_LARGEST_SIZE)
    family: str | None = Field(default=None, max_length=100, examples=["tp+pp+zero-1"])
    """As plans name it; what it does not name is not there."""
