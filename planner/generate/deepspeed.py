"""ds_config.json: what DeepSpeed is told, behind Trainer and the fine-tuners."""

from typing import Any

from planner.domain.strategy import ZERO_3
from planner.generate.run_spec import RunSpec

_SIXTEEN_BIT = {"bf16": "bf16", "bf16-mixed": "bf16", "fp16-mixed": "fp16"}
"""DeepSpeed's section by precision; it always keeps an fp32 copy in the optimizer."""


def settings(spec: RunSpec) -> dict[str, Any]:
    """Return ds_config.json: the batch, what ZeRO shards, what is offloaded, the precision.

    Notation: train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x
    data-parallel GPUs.
    Source: https://www.deepspeed.ai/docs/config-json/
    """
    zero: dict[str, Any] = {"stage": spec.zero_stage}
    if spec.zero_stage == ZERO_3:
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    if spec.offloads_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if spec.offloads_parameters:
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    sections: dict[str, Any] = {
        "train_batch_size": spec.global_batch_size,
        "train_micro_batch_size_per_gpu": spec.micro_batch_size,
        "gradient_accumulation_steps": spec.gradient_accumulation_steps,
        "gradient_clipping": 1.0,
        "zero_optimization": zero,
    }
    if spec.precision in _SIXTEEN_BIT:
        sections[_SIXTEEN_BIT[spec.precision]] = {"enabled": True}
    if spec.offloads_optimizer:
        # The optimizer is PyTorch's: its fused AdamW needs no compiler on the user's machine.
        sections["zero_force_ds_cpu_optimizer"] = False
    return sections


def files(spec: RunSpec) -> dict[str, str]:
    """Return the template of ds_config.json, where a plan is for DeepSpeed."""
    return {"ds_config.json": "common/ds_config.json"} if spec.framework == "deepspeed" else {}
