"""torchtitan's Llama 3, started by torchrun with a configuration written in Python."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from planner.catalog import records
from planner.generate.run_spec import RunSpec
from planner.generate.target import Target

_SHAPE = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
)
FLAVORS: Mapping[tuple[int, ...], str] = MappingProxyType(
    {
        (2048, 16, 32, 8, 8192, 128256): "1B",
        (3072, 28, 24, 8, 8192, 128256): "3B",
        (4096, 32, 32, 8, 14336, 128256): "8B",
        (8192, 80, 64, 8, 28672, 128256): "70B",
        (16384, 126, 128, 8, 53248, 128256): "405B",
    }
)
"""torchtitan's name of a Llama 3 by the fields above. Source: torchtitan 0.3.0, models/llama3."""

_ATTENTION = {"sdpa": "flex", "flash": "varlen"}
_RECOMPUTE = {"none": "None", "selective": "SelectiveAC.Config()", "full": "FullAC.Config()"}
_DTYPES = {"fp32": ("float32", "float32"), "bf16": ("bfloat16", "bfloat16")}
_MIXED = ("float32", "bfloat16")


def _refusal(spec: RunSpec) -> str | None:
    stages, virtual = spec.pipeline_parallel_size, spec.virtual_pipeline_size
    layers = set(spec.layers_per_stage)
    reasons = {
        "it trains all weights: its adapters are not read from a plan": spec.adapters is not None,
        "its weights are not in the config's dtype beside mixed precision": bool(spec.config_dtype),
        "it has Llama 3 of 1B, 3B, 8B, 70B and 405B parameters alone": _flavor(spec) is None,
        "it has DDP and FSDP, not ZeRO-1": spec.zero_stage == 1,
        "its weights are fp32, bf16, or fp32 computed with in bf16": (
            spec.precision not in {*_DTYPES, "bf16-mixed"}
        ),
        "it masks documents, which eager attention cannot": spec.attention == "eager",
        f"its pipelines run {', '.join(_schedules())}": (
            stages > 1 and spec.pipeline_schedule not in _schedules()
        ),
        "its pipeline stages have as many layers each": (
            len(layers) > 1 or any(count % virtual for count in layers)
        ),
        "Llama 3 has no experts": spec.expert_parallel_size > 1,
        "it offloads the optimizer's states with the parameters": spec.offload == "optimizer",
        "it offloads what FSDP shards": spec.offload != "none" and not spec.shards_parameters,
        "it averages gradients every step": spec.synchronize_every > 1,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _schedules() -> Mapping[str, str]:
    return records.framework("torchtitan").capabilities.pipeline_schedules


def _flavor(spec: RunSpec) -> str | None:
    config = spec.model_config
    if config.get("model_type") != "llama":
        return None
    shape = tuple(config.get(name) for name in _SHAPE)
    return next((flavor for known, flavor in FLAVORS.items() if known == shape), None)


def _context(spec: RunSpec) -> dict[str, Any]:
    is_pipeline = spec.pipeline_parallel_size > 1
    chunks = spec.pipeline_parallel_size * spec.virtual_pipeline_size
    passes = spec.gradient_accumulation_steps if is_pipeline else 1
    return {
        "flavor": _flavor(spec),
        "attention_backend": _ATTENTION.get(spec.attention),
        "dtypes": _DTYPES.get(spec.precision, _MIXED),
        "activation_checkpoint": _RECOMPUTE[spec.recompute],
        "schedule": _schedules().get(spec.pipeline_schedule),
        # A pipeline takes all micro-batches of a step at once, and divides them itself.
        "local_batch_size": spec.micro_batch_size * passes,
        "layers_per_chunk": sum(spec.layers_per_stage) // chunks if is_pipeline else None,
    }


TARGET = Target(
    name="torchtitan",
    summary="torchtitan 0.3.0 and its own Llama 3, from random weights; the plan is in `plan.py`."
    " It has its own arguments: what follows about `--data`, `--save-every` and `--resume` is said"
    " of the other scripts.",
    templates={
        "plan.py": "torchtitan/plan.py",
        "launch.sh": "torchtitan/launch.sh",
        "requirements.txt": "torchtitan/requirements.txt",
    },
    refusal=_refusal,
    context=_context,
    launch_template="torchtitan/launch.md",
)
