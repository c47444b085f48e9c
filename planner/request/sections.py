"""What a request says of the cluster, the run and its layout: the sections of the wire schema.

Each field stands here with its type, range and default, and in `data/request/fields.toml` with its words.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from planner.catalog.framework_names import as_recorded
from planner.domain.job import JobName, ReferenceModel
from planner.domain.rollout import VllmMode
from planner.domain.strategy import PipelineSchedule
from planner.domain.topology import LARGEST_TEXT
from planner.hardware.mixed_gpus import LARGEST_NODE
from planner.parallel.lora import DEFAULT_RANK, LoraWish
from planner.request.wire import WireModel

_MOST_LAYERS = 2**12
"""Of a model that is dealt to stages by hand."""
_DEALT = re.compile(r" ?[0-9]{1,4}(?: ?[,+] ?[0-9]{1,4}){1,4095} ?")


class IntraNodeLink(WireModel):
    """A measured link between the GPUs of one node."""

    bus_gb_per_s: float = Field(ge=1e-3, le=1e5)
    latency_us: float = Field(default=15, ge=0, le=1e6)


class InterNodeLink(WireModel):
    """A measured link between nodes."""

    gb_per_s_per_node: float = Field(ge=1e-3, le=1e5)
    latency_us: float = Field(default=30, ge=0, le=1e6)


class ClusterRequest(WireModel):
    """The GPUs and how they are wired; what is given here wins over the instance."""

    within = "cluster."

    instance: str | None = Field(default=None, max_length=100, examples=["p4d.24xlarge"])
    gpu: str | None = Field(
        default=None, max_length=300, examples=["h100-sxm-80gb", "rtx-3090:2,rtx-3060:1"]
    )
    gpus_per_node: int = Field(default=1, ge=1, le=LARGEST_NODE)
    nodes: int = Field(default=1, ge=1, le=65536)
    topology: str | None = Field(default=None, max_length=LARGEST_TEXT)
    intra_node: str | IntraNodeLink | None = None
    inter_node: str | InterNodeLink | None = None
    peer_to_peer: bool | None = None
    nvlink_domain_gpus: int | None = Field(default=None, ge=1, le=4096)
    gpu_power_watts: int | None = Field(default=None, ge=50, le=5000)


class LoraRequest(WireModel):
    """Adapters beside frozen weights, in PEFT's words."""

    within = "recipe.lora."

    rank: int = Field(default=DEFAULT_RANK, ge=1, le=4096)
    targets: Literal["all-linear"] | list[str] | None = Field(
        default=None, min_length=1, max_length=64, examples=[["q_proj", "v_proj"]]
    )
    alpha: float | None = Field(default=None, gt=0, le=1e6)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    dropout_position: Literal["pre", "post"] = "pre"
    bits: Literal[4, 8] = 4
    double_quantization: bool = False
    dtype: Literal["fp32", "16-bit"] | None = None

    def wish(self) -> LoraWish:
        """Return what was given."""
        return LoraWish(**self.model_dump(exclude_unset=True))


class RecipeRequest(WireModel):
    """The training run, independent of its layout."""

    within = "recipe."

    sequence_length: int | None = Field(default=None, ge=1, le=2**24)
    target_length: int | None = Field(default=None, ge=1, le=2**24)
    global_batch_size: int | None = Field(default=None, ge=1, le=2**24)
    global_batch_tokens: int | None = Field(default=None, ge=1, le=2**40)
    precision: Literal["fp32", "tf32", "fp16-mixed", "bf16-mixed", "bf16", "fp8"] | None = None
    fp8_recipe: Literal["tensorwise", "rowwise", "blockwise", "mxfp8"] | None = None
    fp8_activation_input: bool = False
    optimizer: str | None = Field(default=None, max_length=40)
    job: JobName | None = None
    reference_model: ReferenceModel | None = None
    num_generations: int | None = Field(default=None, ge=2, le=4096)
    max_completion_length: int | None = Field(default=None, ge=1, le=2**24)
    mean_completion_length: int | None = Field(default=None, ge=1, le=2**24)
    beta: float | None = Field(default=None, ge=0, le=100)
    vllm_mode: VllmMode | None = None
    vllm_gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    vllm_tensor_parallel_size: int | None = Field(default=None, ge=1, le=4096)
    generation_gpus: int | None = Field(default=None, ge=1, le=4096)
    method: Literal["full", "lora", "qlora"] = "full"
    lora: LoraRequest | None = None
    weights_dtype: Literal["config", "fp32"] | None = None
    attention: Literal["eager", "sdpa", "flash"] | None = None
    loss: Literal["standard", "chunked", "fused"] = "standard"
    framework: str = Field(default="torch", max_length=40)
    framework_version: str | None = Field(
        default=None, min_length=1, max_length=60, examples=["2024-08"]
    )
    gradient_reduce_dtype: Literal["fp32", "bf16"] | None = None
    tensor_parallel_overlap: bool | None = None
    data_parallel_overlap: bool | None = None
    expert_dispatch: Literal["all-to-all", "once-per-node"] = "all-to-all"
    expert_parallel_overlap: bool = False
    optimizer_in_backward: bool = False
    cuda_graphs: bool = False
    task: Literal["sequence-classification", "token-classification"] | None = None
    compile: bool = False
    packed: bool = True
    padding_share: float | None = Field(default=None, ge=0, lt=1)
    training_tokens: int | None = Field(default=None, ge=1, le=10**18)
    training_samples: int | None = Field(default=None, ge=1, le=10**15)

    @model_validator(mode="before")
    @classmethod
    def _framework_as_recorded(cls, values: Any) -> Any:
        """Take a framework by any name that people have for it, or for a project that its record plans."""
        if not isinstance(values, Mapping):
            return values
        framework, version = values.get("framework"), values.get("framework_version")
        if not isinstance(framework, str) or not isinstance(version, str | None):
            return values
        name, said = as_recorded(framework, version)
        return {**values, "framework": name} | ({} if said is None else {"framework_version": said})


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

    within = "strategy."

    data_parallel_size: int | None = Field(default=None, ge=1, le=_LARGEST_SIZE)
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
    context_parallel_size: int = Field(default=1, ge=1, le=_LARGEST_SIZE)
    expert_parallel_size: int = Field(default=1, ge=1, le=_LARGEST_SIZE)
    expert_tensor_parallel_size: int | None = Field(default=None, ge=1, le=_LARGEST_SIZE)
    zero_stage: int | None = Field(default=None, ge=0, le=3)
    micro_batch_size: int | None = Field(default=None, ge=1, le=_LARGEST_SIZE)
    gradient_accumulation_steps: int | None = Field(default=None, ge=1, le=_LARGEST_SIZE)
    recompute: Literal["none", "selective", "full"] | None = None
    recompute_layers: int | None = Field(default=None, ge=1, le=_LARGEST_SIZE)
    recompute_modules: list[RecomputeModule] = Field(default=[], max_length=20)
    activation_offload_layers: int = Field(default=0, ge=0, le=_LARGEST_SIZE)
    offload: Literal["none", "optimizer", "optimizer+parameters"] = "none"
    synchronize_every: int = Field(default=1, ge=1, le=_LARGEST_SIZE)
    family: str | None = Field(default=None, max_length=100, examples=["tp+pp+zero-1"])


class FilesRequest(WireModel):
    """Which files of a plan are written, where some are."""

    within = "files."

    targets: Literal["all"] | list[str] | None = Field(
        default=None, min_length=1, max_length=20, examples=[["torchrun"]]
    )
    launchers: Literal["all"] | list[str] | None = Field(
        default=None, min_length=1, max_length=20, examples=[["slurm"]]
    )
