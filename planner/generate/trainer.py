"""transformers' Trainer, started by torchrun; with DeepSpeed behind it where the plan is for that."""

from typing import Any

from planner.domain.strategy import ZERO_3, Recompute
from planner.generate import deepspeed
from planner.generate.context import liger_kernels
from planner.generate.run_spec import RunSpec
from planner.generate.target import SCRIPT, Target, more_modules
from planner.targets.common import WITH_INDEXERS


def training_arguments(spec: RunSpec) -> dict[str, Any]:
    """Return training_arguments.json: what Trainer must know of the plan.

    Source: https://huggingface.co/docs/transformers/main_classes/trainer
    """
    settings: dict[str, Any] = {
        "per_device_train_batch_size": spec.micro_batch_size,
        "gradient_accumulation_steps": spec.gradient_accumulation_steps,
        "train_sampling_strategy": "sequential",
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "report_to": "none",
    }
    settings |= _precision(spec)
    if spec.loss == "fused":
        settings |= {"use_liger_kernel": True, "liger_kernel_config": liger_kernels(spec)}
    if not spec.shards_gradients and not _is_deepspeed(spec):
        # Trainer would have DDP look through every graph for parameters without a gradient.
        has_some = spec.model_config.get("model_type") in WITH_INDEXERS
        settings["ddp_find_unused_parameters"] = has_some
    is_recomputed = spec.recompute == Recompute.FULL
    if spec.shards_gradients and not _is_deepspeed(spec):
        fsdp = {
            "version": 2,
            "reshard_after_forward": spec.zero_stage == ZERO_3,
            "cpu_offload": spec.offloads_optimizer,
            # PEFT does not find its modules inside FSDP's wrappers: transformers recomputes there.
            "activation_checkpointing": is_recomputed and not spec.adapters,
            # Accelerate would leave quantised weights unread on all ranks but one.
            "cpu_ram_efficient_loading": not (spec.adapters and spec.adapters.is_quantised),
            "state_dict_type": "SHARDED_STATE_DICT",
        }
        own = {"activation_checkpointing": True} if is_recomputed and spec.adapters else {}
        # Trainer would hold whole gradients on every rank until the last micro-batch.
        reduced = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
        sharded = {"fsdp": True, "fsdp_config": fsdp, "accelerator_config": reduced}
        return settings | sharded | own
    if _is_deepspeed(spec):
        settings["deepspeed"] = deepspeed.settings(spec)
    return settings | ({"activation_checkpointing": True} if is_recomputed else {})


def _precision(spec: RunSpec) -> dict[str, bool]:
    # Trainer compares its flag with DeepSpeed's section, where weights in bf16 have an fp32 copy too.
    if spec.precision == "bf16-mixed" or (_is_deepspeed(spec) and spec.precision == "bf16"):
        return {"bf16": True}
    return {"fp16": True} if spec.precision == "fp16-mixed" else {}


def _is_deepspeed(spec: RunSpec) -> bool:
    return spec.framework == "deepspeed"


def _context(spec: RunSpec) -> dict[str, Any]:
    is_deepspeed = _is_deepspeed(spec)
    wrapper = "FSDPModule" if spec.shards_gradients else "DistributedDataParallel"
    return {
        "settings": training_arguments(spec),
        "is_deepspeed": is_deepspeed,
        "wrapper": "DeepSpeedEngine" if is_deepspeed else wrapper,
        "is_sharded": False,
        "checkpoint_prefix": "checkpoint-",
        "shards_on_gpus_alone": spec.shards_gradients and not is_deepspeed,
        "weight_dtype": ("float32" if is_deepspeed and not spec.adapters else spec.weight_dtype),
    }


TARGET = Target(
    name="trainer",
    summary="transformers' Trainer; what that does is in"
    " `training_arguments.json`. Its checkpoints are `checkpoint-N`, not `step-N`.",
    templates={
        "train.py": "trainer/train.py",
        **SCRIPT,
        "launch.sh": "torchrun/launch.sh",
        "training_arguments.json": "trainer/training_arguments.json",
        "config.json": "common/config.json",
        "requirements.txt": "trainer/requirements.txt",
    },
    more_templates=more_modules,
    context=_context,
)
