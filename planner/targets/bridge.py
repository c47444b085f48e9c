"""What Megatron Bridge would not train as planned: adapters beside a model in Megatron's layers."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.strategy import Offload, Strategy
from planner.parallel.partition import layers_per_stage
from planner.targets import losses, megatron, optimizers, some_layers
from planner.targets.base import by_pipeline_size, refusal

MODULES: Mapping[str, str] = MappingProxyType(
    {
        "q_proj": "linear_q",
        "k_proj": "linear_k",
        "v_proj": "linear_v",
        "o_proj": "linear_proj",
        "gate_proj": "linear_fc1_gate",
        "up_proj": "linear_fc1_up",
        "down_proj": "linear_fc2",
    }
)
"""The targets of its CanonicalLoRA, which has adapters of their own for what Megatron fuses, by the planner's names."""

_EXPERTS = frozenset({"gate_proj", "up_proj", "down_proj"})
_MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe")


def judge(job: Job, s: Strategy) -> tuple[Breach, ...]:
    """Return why Megatron Bridge's finetune refuses a layout."""
    lora, kind = job.recipe.lora, job.model.model_type
    targets = () if lora is None else lora.targets
    return (
        refusal(lora is None, "it trains only adapters beside frozen weights", "recipe.method"),
        refusal(
            lora is not None and lora.is_quantised,
            "Megatron's frozen weights are in 16 bit or fp8",
            "recipe.method",
        ),
        refusal(
            kind not in _MODEL_TYPES,
            "it is written for models of type {known}, not {kind}",
            "model",
            known=", ".join(_MODEL_TYPES),
            kind=kind[:40],
        ),
        refusal(
            not job.model.is_pretrained,
            "its adapters stand beside weights of the Hub",
            "model",
        ),
        refusal(
            not set(targets) <= set(MODULES),
            "its adapters stand beside {known} alone",
            "recipe.lora.targets",
            known=", ".join(MODULES),
        ),
        refusal(
            job.model.has_experts and not _EXPERTS.isdisjoint(targets),
            "it would train adapters of the experts too, which share their linears' names",
            "recipe.lora.targets",
        ),
        refusal(
            job.recipe.precision not in {"bf16-mixed", "fp16-mixed", "fp8"},
            "its frozen weights are in 16 bit or fp8",
            "recipe.precision",
        ),
        refusal(
            job.recipe.fp8_recipe == "blockwise",
            "its recipe of blockwise scales holds frozen weights in 16 bit, not in fp8",
            "recipe.fp8_recipe",
        ),
        refusal(
            job.recipe.attention == "eager",
            "it leaves attention to fused kernels",
            "recipe.attention",
        ),
        refusal(
            np.asarray(s.offload) != Offload.NONE,
            "the adapters' states are too few to be moved to host memory",
        ),
        refusal(
            np.asarray(by_pipeline_size(s, lambda size: len(set(layers_per_stage(job, size))))) > 1,
            "its pipeline stages are equal",
        ),
        refusal(
            bool(job.pipeline_layout),
            "it deals blocks to stages by itself",
            "strategy.pipeline_layout",
        ),
        losses.standard_alone(job, "Megatron Bridge is told of no loss but its own"),
        optimizers.adamw(job),
        *some_layers.alike(s),
        *megatron.divided(job, s),
    )
