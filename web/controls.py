"""The controls of the form that are in sight, and all of them by name: one per query parameter."""

from collections.abc import Mapping
from functools import cache

from planner.catalog import records
from planner.request.assumed import ASSUMED_SEQUENCE_LENGTH
from planner.request.cluster import ASSUMED_GPU, ClusterRequest
from planner.request.sections import RecipeRequest
from web.control import Control, Fieldset, amount, number, plain, select
from web.more_controls import more_fieldsets

EXAMPLES: Mapping[str, Mapping[str, str]] = {
    "GPT-2 on 4 GPUs": {"model": "gpt2", "gpus_per_node": "4"},
    "Llama-2-7b on 8 A100": {
        "model": "meta-llama/Llama-2-7b-hf",
        "gpu": "a100-sxm-80gb",
        "gpus_per_node": "8",
    },
    "QLoRA of Llama-2-70b on 2 RTX 4090": {
        "model": "meta-llama/Llama-2-70b-hf",
        "gpu": "rtx-4090",
        "gpus_per_node": "2",
        "method": "qlora",
    },
    "Llama-3.1-70B on 4 nodes of 8 H100": {
        "model": "meta-llama/Llama-3.1-70B",
        "gpu": "h100-sxm-80gb",
        "gpus_per_node": "8",
        "nodes": "4",
        "framework": "megatron",
    },
}
"""Questions that show what can be asked."""


@cache
def fieldsets() -> tuple[Fieldset, ...]:
    """Return the fieldsets in sight, in reading order."""
    return (
        Fieldset(legend="What to train", controls=_model()),
        Fieldset(legend="Machine", controls=_machine()),
        Fieldset(legend="Training", controls=_training()),
    )


def _model() -> tuple[Control, ...]:
    return (
        Control(
            name="model",
            label="Model",
            columns=6,
            note="a Hugging Face id: all that is needed",
            choices=plain(records.model_ids()),
            is_required=True,
        ),
        Control(
            name="method",
            label="Method",
            columns=6,
            kind="select",
            placeholder="all weights",
            choices={"lora": "LoRA", "qlora": "QLoRA"},
            stands_for="full",
        ),
    )


def _machine() -> tuple[Control, ...]:
    cluster = ClusterRequest.model_fields
    return (
        Control(
            name="gpu",
            label="GPU",
            placeholder=ASSUMED_GPU,
            note="a name, or what nvidia-smi calls it",
            choices=plain(records.gpu_names()),
        ),
        number("gpus_per_node", "GPUs per node", str(cluster["gpus_per_node"].default), columns=2),
        number("nodes", "Nodes", str(cluster["nodes"].default), columns=2),
        Control(
            name="instance",
            label="Cloud instance",
            placeholder="none",
            note="instead: fills in GPUs, wiring and network",
            choices=plain(records.instance_names()),
        ),
        Control(
            name="topology",
            label="Topology",
            columns=12,
            kind="textarea",
            rows=3,
            placeholder="none: wired as such GPUs are sold",
            note="what nvidia-smi topo -m, topo -p2p or nvlink -s printed, in any order, or the"
            " file of planner probe --out",
        ),
    )


def _training() -> tuple[Control, ...]:
    recipe = RecipeRequest.model_fields
    usual = recipe["framework"].default
    frameworks = [records.framework(name) for name in records.framework_names()]
    precisions = dict.fromkeys(name for framework in frameworks for name in framework.precisions)
    return (
        amount(
            "sequence_length",
            "Sequence length",
            f"the model's, up to {ASSUMED_SEQUENCE_LENGTH:,}",
            "tokens, such as 4096 or 128k",
        ),
        amount(
            "global_batch_size",
            "Global batch size",
            "what such training takes",
            "sequences per optimizer step, over all GPUs, or 0.5M tokens",
        ),
        amount(
            "training_tokens",
            "Tokens of the run",
            "not said",
            "such as 20B; for hours, GPU-hours and, with an instance, the price",
        ),
        select("framework", "Framework", usual, records.framework_names()),
        select("precision", "Precision", "the best the GPU has", precisions),
        select(
            "optimizer",
            "Optimizer",
            "the framework's usual",
            records.framework(usual).optimizers,
        ),
    )


@cache
def labels() -> Mapping[str, str]:
    """Return the label of each control by its name."""
    groups = (*fieldsets(), *more_fieldsets())
    return {control.name: control.label for group in groups for control in group.controls}
