"""Megatron Bridge's finetune with adapters, started by torchrun with the plan in a script."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from planner.domain.recompute_modules import names_of
from planner.domain.strategy import Recompute
from planner.generate.run_spec import RunSpec
from planner.generate.target import Target
from planner.models.architectures import read_model
from planner.targets.bridge import MODULES

_PRECISIONS: Mapping[str, str] = MappingProxyType(
    {"fp16-mixed": "fp16_mixed", "bf16-mixed": "bf16_mixed"}
)
_FP8_PRECISIONS: Mapping[str | None, str] = MappingProxyType(
    {
        None: "bf16_with_fp8_delayed_scaling_mixed",
        "tensorwise": "bf16_with_fp8_current_scaling_mixed",
        "mxfp8": "bf16_with_mxfp8_mixed",
    }
)
"""Names of its mixed-precision recipes, in fp8 by their scales: those that hold frozen weights in fp8."""

RECOMPUTE: Mapping[Recompute, Mapping[str, Any]] = MappingProxyType(
    {
        Recompute.NONE: {},
        Recompute.SELECTIVE: {"recompute_granularity": "selective"},
        Recompute.FULL: {
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        },
    }
)
"""Fields of Megatron's TransformerConfig; its arguments are called alike."""


def model_settings(spec: RunSpec) -> dict[str, Any]:
    """Return what the plan sets of the model's provider: fields of Megatron's TransformerConfig.

    Source: megatron-core, ModelParallelConfig and TransformerConfig; Megatron Bridge's recipes.
    """
    virtual = spec.virtual_pipeline_size
    settings: dict[str, Any] = {
        "tensor_model_parallel_size": spec.tensor_parallel_size,
        "sequence_parallel": spec.sequence_parallel and spec.tensor_parallel_size > 1,
        "pipeline_model_parallel_size": spec.pipeline_parallel_size,
        "virtual_pipeline_model_parallel_size": virtual if virtual > 1 else None,
        "context_parallel_size": spec.context_parallel_size,
        "seq_length": spec.sequence_length,
    }
    if read_model(spec.model, spec.model_config).has_experts:
        settings |= {
            "expert_model_parallel_size": spec.expert_parallel_size,
            "expert_tensor_parallel_size": int(spec.ranks_per_expert),
            "moe_token_dispatcher_type": "alltoall",
        }
    modules = list(names_of(spec.recompute_modules))
    named = {"recompute_modules": modules} if modules else {}
    return {**settings, **RECOMPUTE[spec.recompute], **named}


def _context(spec: RunSpec) -> dict[str, Any]:
    adapters = spec.adapters
    modules = [MODULES[name] for name in adapters.modules] if adapters else []
    return {
        "model_settings": model_settings(spec),
        "modules": modules,
        "mixed_precision": _mixed_precision(spec),
        "shards_optimizer": spec.zero_stage == 1,
    }


def _mixed_precision(spec: RunSpec) -> str:
    if spec.precision == "fp8":
        return _FP8_PRECISIONS[spec.fp8_recipe]
    return _PRECISIONS[spec.precision]


TARGET = Target(
    name="megatron-bridge",
    summary="adapters beside a model of the Hub in Megatron's layers, by Megatron Bridge; the plan is in"
    " `finetune.py`.",
    templates={
        "finetune.py": "megatron-bridge/finetune.py",
        "launch.sh": "megatron-bridge/launch.sh",
    },
    context=_context,
    launch_template="megatron-bridge/launch.md",
)
