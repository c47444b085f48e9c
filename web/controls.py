"""The controls of the form, as data: one per query parameter that a person would set."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import get_args

from planner.catalog import records
from planner.domain.dimensions import DIMENSIONS
from planner.domain.strategy import Recompute
from planner.parallel.adapters import ALL_LINEAR
from planner.report.text import FAMILY_NAMES
from planner.request.assumed import ASSUMED_SEQUENCE_LENGTH, ASSUMED_TOKENS_PER_STEP
from planner.request.cluster import ASSUMED_GPU, ClusterRequest
from planner.request.lora import LoraRequest
from planner.request.schema import RecipeRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """One input of the form."""

    name: str
    label: str
    kind: str = "text"
    """`text`, `number`, `select` or `textarea`."""
    placeholder: str = ""
    """What an empty input means; of a select, the text of its empty option."""
    note: str = ""
    choices: Mapping[str, str] | None = None
    """Value to label: the options of a select, the suggestions of a text."""
    is_required: bool = False
    columns: int = 4
    """Of the form's twelve, on a wide screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fieldset:
    """A fieldset; a folded one opens when any of its controls has a value."""

    legend: str
    controls: tuple[Control, ...]
    is_folded: bool = False


EXAMPLES: Mapping[str, Mapping[str, str]] = {
    "GPT-2 on 4 GPUs": {"model": "gpt2", "gpus_per_node": "4"},
    "Llama-2-7b on 8 A100": {
        "model": "meta-llama/Llama-2-7b-hf",
        "gpu": "a100-sxm-80gb",
        "gpus_per_node": "8",
    },
    "Llama-3.1-8B on 2 nodes of 8 H100": {
        "model": "meta-llama/Llama-3.1-8B",
        "gpu": "h100-sxm-80gb",
        "gpus_per_node": "8",
        "nodes": "2",
        "inter_node": "infiniband-ndr",
    },
}
"""Questions that show what can be asked."""


@cache
def fieldsets() -> tuple[Fieldset, ...]:
    """Return the fieldsets of the form, in reading order."""
    return (
        Fieldset(legend="Model and GPUs", controls=_model_and_gpus()),
        Fieldset(legend="Training run", controls=(*_run(), *_method())),
        Fieldset(legend="Wiring of the GPUs", controls=_links(), is_folded=True),
        Fieldset(legend="Strategy you want", controls=_strategy(), is_folded=True),
        Fieldset(legend="What the framework does", controls=_framework(), is_folded=True),
    )


def _model_and_gpus() -> tuple[Control, ...]:
    cluster = ClusterRequest.model_fields
    return (
        Control(
            name="model",
            label="Model",
            placeholder="gpt2",
            note="a Hugging Face id",
            choices=_plain(records.model_ids()),
            is_required=True,
        ),
        Control(
            name="gpu",
            label="GPU",
            placeholder=ASSUMED_GPU,
            note="a name, or what nvidia-smi calls it",
            choices=_plain(records.gpu_names()),
        ),
        Control(
            name="gpus_per_node",
            label="GPUs per node",
            kind="number",
            columns=2,
            placeholder=str(cluster["gpus_per_node"].default),
        ),
        Control(
            name="nodes",
            label="Nodes",
            kind="number",
            columns=2,
            placeholder=str(cluster["nodes"].default),
        ),
    )


def _run() -> tuple[Control, ...]:
    recipe = RecipeRequest.model_fields
    frameworks = [records.framework(name) for name in records.framework_names()]
    precisions = dict.fromkeys(name for framework in frameworks for name in framework.precisions)
    return (
        Control(
            name="sequence_length",
            label="Sequence length",
            kind="number",
            columns=6,
            placeholder=f"the model's, up to {ASSUMED_SEQUENCE_LENGTH:,}",
            note="tokens",
        ),
        Control(
            name="global_batch_size",
            label="Global batch size",
            kind="number",
            columns=6,
            placeholder=f"about {ASSUMED_TOKENS_PER_STEP:,} tokens",
            note="sequences per optimizer step, over all GPUs",
        ),
        Control(
            name="training_tokens",
            label="Tokens of the run",
            kind="number",
            columns=4,
            placeholder="not said",
            note="for hours, GPU-hours and, with an instance, the price",
        ),
        Control(
            name="padding_share",
            label="Padding",
            kind="text",
            columns=4,
            placeholder="none: packed",
            note="share of the tokens, such as 0.3",
        ),
        _select(
            "task",
            "Task",
            "the model's own",
            ("sequence-classification", "token-classification"),
            columns=4,
        ),
        _select("precision", "Precision", "the best the GPU has", precisions),
        Control(
            name="weights_dtype",
            label="Weights",
            kind="select",
            placeholder="default (fp32)",
            note="parameters under mixed precision",
            choices={"fp32": "fp32", "config": "as the model's config says"},
        ),
        _select(
            "attention",
            "Attention",
            f"default ({recipe['attention'].default})",
            get_args(recipe["attention"].annotation),
        ),
        _select(
            "loss",
            "Loss",
            f"default ({recipe['loss'].default})",
            get_args(recipe["loss"].annotation),
        ),
        _select(
            "framework",
            "Framework",
            f"default ({recipe['framework'].default})",
            records.framework_names(),
        ),
        Control(
            name="compile",
            label="Compiled",
            kind="select",
            placeholder="default (no)",
            choices={"true": "by torch.compile"},
        ),
        _select(
            "optimizer",
            "Optimizer",
            f"default ({recipe['optimizer'].default})",
            records.framework(recipe["framework"].default).optimizers,
        ),
    )


def _method() -> tuple[Control, ...]:
    return (
        Control(
            name="method",
            label="Method",
            kind="select",
            placeholder="default (full)",
            choices={"full": "full", "lora": "LoRA", "qlora": "QLoRA"},
        ),
        Control(
            name="lora_rank",
            label="LoRA rank",
            kind="number",
            placeholder=str(LoraRequest.model_fields["rank"].default),
            note="of LoRA and QLoRA alone",
        ),
        Control(
            name="lora_targets",
            label="LoRA targets",
            placeholder="as PEFT has them",
            note="linears, comma-separated",
            choices=_plain([ALL_LINEAR, "q_proj,v_proj", "q_proj,k_proj,v_proj,o_proj"]),
        ),
    )


def _links() -> tuple[Control, ...]:
    return (
        Control(
            name="topology",
            label="Topology",
            columns=12,
            kind="textarea",
            placeholder="        GPU0    GPU1\nGPU0     X      NV12\nGPU1    NV12     X",
            note="what nvidia-smi topo -m, topo -p2p or nvlink -s printed, in any order, or the"
            " file of planner probe --out",
        ),
        Control(
            name="intra_node",
            label="Link inside a node",
            columns=6,
            placeholder="the GPU's own",
            choices=_plain(records.link_names()),
        ),
        Control(
            name="inter_node",
            label="Link between nodes",
            columns=6,
            placeholder="as such nodes are sold, or 8x infiniband-ndr",
            choices=_plain(records.link_names()),
        ),
        Control(
            name="nvlink_domain_gpus",
            label="GPUs that NVLink joins",
            kind="number",
            columns=6,
            placeholder="those of a node, or of the GPU's rack",
        ),
        Control(
            name="gpu_power_watts",
            label="Power limit of a GPU",
            kind="number",
            columns=6,
            placeholder="as it is sold",
            note="watts",
        ),
        Control(
            name="instance",
            label="Cloud instance",
            columns=6,
            placeholder="none",
            note="fills in the GPUs, their wiring and the network",
            choices=_plain(records.instance_names()),
        ),
        Control(
            name="peer_to_peer",
            label="Direct copies between GPUs",
            columns=6,
            kind="select",
            placeholder="what the driver allows",
            choices={"true": "on", "false": "off"},
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
        _select(
            "gradient_reduce_dtype",
            "Gradients travel in",
            "as the framework has it",
            ("fp32", "bf16"),
        ),
        _select(
            "expert_dispatch",
            "A token goes",
            "once per chosen expert",
            ("once-per-node",),
        ),
        _switch("tensor_parallel_overlap", "Tensor exchanges beside matmuls"),
        _switch("data_parallel_overlap", "Gradients beside backward"),
        _switch("expert_parallel_overlap", "Expert exchanges beside matmuls"),
        _switch("optimizer_in_backward", "Optimizer steps in backward"),
        _switch("cuda_graphs", "CUDA graphs"),
    )


def _switch(name: str, label: str) -> Control:
    return Control(
        name=name,
        label=label,
        kind="select",
        placeholder="as the framework has it",
        choices={"true": "yes", "false": "no"},
    )


def _strategy() -> tuple[Control, ...]:
    return (
        Control(
            name="strategy",
            label="Strategy",
            columns=6,
            kind="select",
            placeholder="the planner chooses",
            choices=FAMILY_NAMES,
        ),
        Control(
            name="micro_batch_size",
            label="Micro-batch size",
            kind="number",
            columns=6,
            placeholder="the planner chooses",
            note="sequences per GPU and pass",
        ),
        Control(
            name="gradient_accumulation_steps",
            label="Accumulation steps",
            kind="number",
            columns=6,
            placeholder="the planner chooses",
        ),
        _select(
            "recompute", "Activation recompute", "the planner chooses", Recompute.names(), columns=6
        ),
        *(
            Control(
                name=dimension.field,
                label=f"{dimension.name.capitalize()} parallel",
                kind="number",
                columns=3,
                placeholder="any",
            )
            for dimension in DIMENSIONS
        ),
        _select("objective", "Best at", "time", ("memory", "gpus", "cost"), columns=4),
        Control(
            name="max_gpus",
            label="At most so many GPUs",
            kind="number",
            columns=4,
            placeholder="those named above",
            note="the number is open up to it",
        ),
        Control(
            name="deadline_hours",
            label="Deadline",
            columns=4,
            placeholder="none",
            note="hours; needs the tokens of the run",
        ),
    )


def _select(name: str, label: str, empty: str, choices: Iterable[str], columns: int = 4) -> Control:
    return Control(
        name=name,
        label=label,
        kind="select",
        placeholder=empty,
        choices=_plain(choices),
        columns=columns,
    )


def _plain(names: Iterable[str]) -> dict[str, str]:
    return {name: name for name in names}


@cache
def labels() -> Mapping[str, str]:
    """Return the label of each control by its name."""
    return {control.name: control.label for group in fieldsets() for control in group.controls}
