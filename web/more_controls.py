"""The controls behind "Everything else": whatever the terminal has beside the ones in sight."""

from functools import cache
from itertools import chain
from typing import get_args

from planner.catalog import records
from planner.domain.dimensions import DIMENSIONS
from planner.domain.recompute_modules import MODULES
from planner.domain.strategy import Offload, PipelineSchedule, Recompute
from planner.parallel.adapters import ALL_LINEAR
from planner.report.layout_words import FAMILY_NAMES
from planner.request.lora import LoraRequest
from planner.request.sections import RecipeRequest
from web.control import Control, Fieldset, amount, number, plain, select, switch

_CHOSEN = "the planner chooses"


@cache
def more_fieldsets() -> tuple[Fieldset, ...]:
    """Return the fieldsets that are folded away, in reading order."""
    return (
        Fieldset(legend="What you want of the plan", controls=_goal()),
        Fieldset(legend="Layout you want", controls=(*_layout(), *_pipeline(), *_held())),
        Fieldset(legend="Data and arithmetic", controls=_recipe()),
        Fieldset(legend="Adapters", controls=_adapters()),
        Fieldset(legend="Your machine", controls=_links()),
        Fieldset(legend="What the framework does", controls=_framework()),
    )


def _goal() -> tuple[Control, ...]:
    return (
        select("objective", "Best at", "time", ("memory", "gpus", "cost")),
        number(
            "max_gpus",
            "At most so many GPUs",
            "those of the machine",
            "their number is open up to it",
            columns=4,
        ),
        amount(
            "deadline_hours",
            "Deadline",
            "none",
            "hours, or such as 7d; needs the tokens of the run",
        ),
        number("training_samples", "Samples of the run", "not said", "over all epochs", columns=4),
        Control(
            name="why",
            label="Why not",
            placeholder="not asked",
            note="of a layout: a size or a family, such as tp=16, dp=2x4 or hsdp",
            columns=8,
        ),
    )


def _layout() -> tuple[Control, ...]:
    return (
        Control(
            name="strategy",
            label="Strategy",
            columns=6,
            kind="select",
            placeholder=_CHOSEN,
            choices=FAMILY_NAMES,
        ),
        number("micro_batch_size", "Micro-batch size", _CHOSEN, "sequences per GPU and pass"),
        number("gradient_accumulation_steps", "Accumulation steps", _CHOSEN),
        *(
            number(dimension.field, f"{dimension.name.capitalize()} parallel")
            for dimension in DIMENSIONS
        ),
        number("data_parallel_size", "Data parallel"),
        number("data_parallel_replicate_size", "Replicas of the shards"),
        number("data_parallel_shard_size", "GPUs that share a replica"),
        number("synchronize_every", "Local SGD", "no", "average every so many steps"),
    )


def _pipeline() -> tuple[Control, ...]:
    return (
        select(
            "pipeline_schedule", "Pipeline schedule", _CHOSEN, PipelineSchedule.names(), columns=3
        ),
        number("virtual_pipeline_size", "Chunks of a stage", _CHOSEN),
        Control(
            name="pipeline_layout",
            label="Layers of each stage",
            placeholder="as the framework does",
            note="of Megatron, chunk by chunk: 2,3,3,2",
            choices=plain(["loss-aware", "embedding-and-loss-aware"]),
            columns=6,
        ),
    )


def _held() -> tuple[Control, ...]:
    return (
        select("recompute", "Activation recompute", _CHOSEN, Recompute.names(), columns=3),
        number("recompute_layers", "Recomputed blocks", "all"),
        Control(
            name="recompute_modules",
            label="Recomputed modules",
            placeholder="as the framework does",
            note="of Megatron, comma-separated",
            choices=plain(["moe_act,layernorm", *MODULES]),
            columns=6,
        ),
        select("offload", "Offload", _CHOSEN, Offload.names(), columns=3),
        number("activation_offload_layers", "Activations offloaded", "none", "blocks of a stage"),
        switch("sequence_parallel", "Sequence parallelism", _CHOSEN, columns=3),
        number("expert_tensor_parallel_size", "Ranks that share an expert", "as dealt"),
    )


def _recipe() -> tuple[Control, ...]:
    return (
        select(
            "task",
            "Task",
            "the model's own",
            ("sequence-classification", "token-classification"),
        ),
        select(
            "attention",
            "Attention",
            "sdpa, or eager where a model has no sdpa",
            _names("attention"),
        ),
        select("loss", "Loss", "standard, or a lighter one if nothing fits", _names("loss")),
        Control(
            name="weights_dtype",
            label="Weights",
            kind="select",
            placeholder="fp32",
            note="parameters under mixed precision",
            choices={"config": "as the model's config says"},
            stands_for="fp32",
        ),
        switch("compile", "torch.compile", "no"),
        Control(
            name="padding_share",
            label="Padding",
            placeholder="none: packed",
            note="share of the tokens, such as 0.3",
        ),
    )


def _names(field: str) -> tuple[str, ...]:
    """Return what a field of the recipe may be called, whether or not it may be left out."""
    kinds = get_args(RecipeRequest.model_fields[field].annotation)
    names = chain.from_iterable(get_args(kind) or (kind,) for kind in kinds)
    return tuple(name for name in names if isinstance(name, str))


def _adapters() -> tuple[Control, ...]:
    return (
        number(
            "lora_rank",
            "LoRA rank",
            str(LoraRequest.model_fields["rank"].default),
            "of LoRA and QLoRA alone",
            columns=6,
        ),
        Control(
            name="lora_targets",
            label="LoRA targets",
            columns=6,
            placeholder="as PEFT has them",
            note="linears, comma-separated",
            choices=plain([ALL_LINEAR, "q_proj,v_proj", "q_proj,k_proj,v_proj,o_proj"]),
        ),
    )


def _links() -> tuple[Control, ...]:
    return (
        Control(
            name="intra_node",
            label="Link inside a node",
            columns=6,
            placeholder="the GPU's own",
            choices=plain(records.link_names()),
        ),
        Control(
            name="inter_node",
            label="Link between nodes",
            columns=6,
            placeholder="as such nodes are sold, or 8x infiniband-ndr",
            choices=plain(records.link_names()),
        ),
        number(
            "nvlink_domain_gpus",
            "GPUs that NVLink joins",
            "those of a node, or of the GPU's rack",
            columns=4,
        ),
        Control(
            name="peer_to_peer",
            label="Direct copies between GPUs",
            kind="select",
            placeholder="what the driver allows",
            choices={"true": "on", "false": "off"},
        ),
        number("gpu_power_watts", "Power limit of a GPU", "as it is sold", "watts", columns=4),
        Control(
            name="machine",
            label="Machine file",
            columns=12,
            kind="textarea",
            rows=3,
            placeholder="none: the catalogue's figures",
            note="what planner calibrate wrote: its figures win over the catalogue's; the plan's link"
            " carries them",
        ),
    )


def _framework() -> tuple[Control, ...]:
    return (
        Control(
            name="framework_version",
            label="Release",
            placeholder="the newest known",
            note="a name, a number or a date, such as 2022-03",
        ),
        select(
            "fp8_recipe",
            "Scales in fp8",
            "as the framework has it",
            _names("fp8_recipe"),
        ),
        select(
            "gradient_reduce_dtype",
            "Gradients travel in",
            "as the framework has it",
            ("fp32", "bf16"),
        ),
        Control(
            name="expert_dispatch",
            label="A token goes",
            kind="select",
            placeholder="once per chosen expert",
            choices=plain(["once-per-node"]),
            stands_for="all-to-all",
        ),
        switch("tensor_parallel_overlap", "Tensor exchanges beside matmuls"),
        switch("data_parallel_overlap", "Gradients beside backward"),
        switch("expert_parallel_overlap", "Expert exchanges beside matmuls", "no"),
        switch("optimizer_in_backward", "Optimizer steps in backward", "no"),
        switch("cuda_graphs", "CUDA graphs", "no"),
    )
