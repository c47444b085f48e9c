"""DeepSpeed's ZeRO, started by torchrun."""

from dataclasses import replace
from typing import Any

from planner.domain.strategy import ZERO_3
from planner.generate.context import weights_divided_by
from planner.generate.run_spec import RunSpec
from planner.generate.target import PLAIN, Target
from planner.targets.families import family, is_tied

_SIXTEEN_BIT = {"bf16": "bf16", "bf16-mixed": "bf16", "fp16-mixed": "fp16"}
"""DeepSpeed's section by precision; it always keeps an fp32 copy in the optimizer."""


def settings(spec: RunSpec) -> dict[str, Any]:
    """Return ds_config.json: the batch, what ZeRO shards, what is offloaded, the precision.

    Notation: train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x
    data-parallel GPUs.
    Source: https://www.deepspeed.ai/docs/config-json/
    """
    zero: dict[str, Any] = {"stage": _config_stage(spec)}
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


def _config_stage(spec: RunSpec) -> int:
    """Return the stage in ds_config.json: a 16-bit pipeline's is 1 where the plan's is 0.

    At stage 0 DeepSpeed shards a bf16 pipeline's optimizer over data-parallel GPUs all the same, but
    cannot load that again; in fp16 it counts tied embeddings twice when it clips.

    Source: DeepSpeed 0.19.8, runtime/bf16_optimizer.py, runtime/fp16/unfused_optimizer.py and
    _load_checkpoint of runtime/engine.py.
    """
    is_pipelined = spec.pipeline_parallel_size > 1
    return max(spec.zero_stage, int(is_pipelined and spec.precision in _SIXTEEN_BIT))


def _context(spec: RunSpec) -> dict[str, Any]:
    as_written = replace(spec, framework="deepspeed", zero_stage=_config_stage(spec))
    is_pipelined = spec.pipeline_parallel_size > 1
    return {
        "is_torchrun": False,
        "model_parts": ["deepspeed/stages"] if is_pipelined else [],
        "training_part": "deepspeed/training",
        "ranks_of_model": "PIPELINE_PARALLEL_SIZE",
        "ranks_of_group": "PIPELINE_PARALLEL_SIZE",
        "is_sharded": False,
        "weight_dtype": "float32",
        "settings": settings(spec),
        "config_stage": as_written.zero_stage,
        "needs_norm": spec.precision not in _SIXTEEN_BIT,
        "is_zero_3_of_deepspeed": as_written.zero_stage == ZERO_3,
        "divided_by": weights_divided_by(as_written),
        "family": family(spec.model_config),
        "is_tied": is_tied(spec.model_config),
    }


TARGET = Target(
    name="deepspeed",
    summary="what is sharded and offloaded is in `ds_config.json`. Its"
    " checkpoints resume on as many GPUs as wrote them.",
    templates={
        "train.py": "deepspeed/train.py",
        **PLAIN,
        "launch.sh": "torchrun/launch.sh",
        "ds_config.json": "deepspeed/ds_config.json",
        "config.json": "common/config.json",
        "requirements.txt": "deepspeed/requirements.txt",
    },
    context=_context,
)
