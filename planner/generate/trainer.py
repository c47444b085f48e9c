"""transformers' Trainer, started by torchrun; with DeepSpeed behind it where the plan is for that."""

from typing import Any

from planner.domain.strategy import ZERO_3
from planner.generate import deepspeed
from planner.generate.bundle import Bundle
from planner.generate.target import Target


def training_arguments(bundle: Bundle) -> dict[str, Any]:
    """Return training_arguments.json: what Trainer must know of the plan.

    Source: https://huggingface.co/docs/transformers/main_classes/trainer
    """
    settings: dict[str, Any] = {
        "per_device_train_batch_size": bundle.micro_batch_size,
        "gradient_accumulation_steps": bundle.gradient_accumulation_steps,
        "train_sampling_strategy": "sequential",
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "report_to": "none",
    }
    settings |= _precision(bundle)
    is_recomputed = bundle.recompute == "full"
    if bundle.shards_parameters and not _is_deepspeed(bundle):
        fsdp = {
            "version": 2,
            "reshard_after_forward": bundle.zero_stage == ZERO_3,
            "cpu_offload": bundle.offload != "none",
            "activation_checkpointing": is_recomputed,
            "cpu_ram_efficient_loading": True,
            "state_dict_type": "SHARDED_STATE_DICT",
        }
        return settings | {"fsdp": True, "fsdp_config": fsdp}
    if _is_deepspeed(bundle):
        settings["deepspeed"] = deepspeed.settings(bundle)
    return settings | ({"activation_checkpointing": True} if is_recomputed else {})


def _precision(bundle: Bundle) -> dict[str, bool]:
    # Trainer compares its flag with DeepSpeed's section, where weights in bf16 have an fp32 copy too.
    if bundle.precision == "bf16-mixed" or (_is_deepspeed(bundle) and bundle.precision == "bf16"):
        return {"bf16": True}
    return {"fp16": True} if bundle.precision == "fp16-mixed" else {}


def _is_deepspeed(bundle: Bundle) -> bool:
    return bundle.framework == "deepspeed"


def _refusal(bundle: Bundle) -> str | None:
    if bundle.splits_the_model:
        return "Trainer divides the data, not the model, over GPUs"
    if _is_deepspeed(bundle):
        return deepspeed.zero_refusal(bundle)
    reasons = {
        "Trainer has ZeRO-1 through DeepSpeed alone": bundle.zero_stage == 1,
        "its FSDP shards over all GPUs, without replicas": (
            bundle.shards_parameters and bundle.data_parallel_replicate_size > 1
        ),
        "Trainer recomputes whole blocks or nothing": bundle.recompute == "selective",
        "FSDP moves the parameters to host memory together with the optimizer's states": (
            bundle.offload == "optimizer"
        ),
        "only FSDP (ZeRO-2 and 3) has parameters wait in host memory": (
            bundle.offload != "none" and not bundle.shards_parameters
        ),
        "Trainer averages gradients every step": bundle.synchronize_every > 1,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _context(bundle: Bundle) -> dict[str, Any]:
    is_deepspeed = _is_deepspeed(bundle)
    wrapper = "FSDPModule" if bundle.shards_parameters else "DistributedDataParallel"
    return {
        "settings": training_arguments(bundle),
        "is_deepspeed": is_deepspeed,
        "wrapper": "DeepSpeedEngine" if is_deepspeed else wrapper,
        "is_sharded": False,
        "weight_dtype": "bfloat16"
        if bundle.precision == "bf16" and not is_deepspeed
        else "float32",
    }


TARGET = Target(
    name="trainer",
    summary="the same training by transformers' Trainer; the parallelism is in"
    " `training_arguments.json`. Its checkpoints are `checkpoint-100`, not `step-100`.",
    templates={
        "train.py": "trainer/train.py",
        "launch.sh": "torchrun/launch.sh",
        "training_arguments.json": "trainer/training_arguments.json",
        "config.json": "common/config.json",
        "requirements.txt": "trainer/requirements.txt",
    },
    refusal=_refusal,
    context=_context,
)
