"""LLaMA-Factory, as a configuration alone; sharded by Accelerate, or with DeepSpeed behind it."""

from typing import Any

from planner.catalog.packages import packages, released_with
from planner.domain.strategy import Recompute
from planner.generate import deepspeed, finetuners
from planner.generate.hyperparameters import hyperparameters
from planner.generate.run_spec import RunSpec
from planner.generate.target import Target
from planner.targets.optimizers import optimizers

_ATTENTION = {"eager": "disabled", "sdpa": "sdpa", "flash": "fa2"}


def sections(spec: RunSpec) -> dict[str, dict[str, Any]]:
    """Return config.yaml's settings under what they are about, but for the data.

    Source: LLaMA-Factory 0.9.5, hparams; the rest are transformers' TrainingArguments.
    """
    return {
        "the model": _model(spec),
        "what is trained": _trained(spec),
        "tokens and sequences of a step": _batch(spec),
        "arithmetic": _arithmetic(spec),
        "who does what": _layout(spec),
        "optimizer": _optimizer(spec),
        "the run": {
            **finetuners.run_settings(spec, epochs="num_train_epochs"),
            # It goes on from the last checkpoint of that folder.
            "overwrite_output_dir": False,
            "save_strategy": "steps",
            "report_to": "none",
        },
    }


def _model(spec: RunSpec) -> dict[str, Any]:
    is_on_hub = not spec.model.startswith("/")
    revision = {"model_revision": spec.revision} if is_on_hub else {}
    return {"model_name_or_path": spec.model, **revision}


def _trained(spec: RunSpec) -> dict[str, Any]:
    adapters, is_deepspeed = spec.adapters, spec.framework == "deepspeed"
    is_half = spec.weight_dtype == "bfloat16" if adapters is None else not adapters.is_fp32
    task = {"stage": "sft", "do_train": True}
    dtypes = {
        # ZeRO has a copy in fp32 of what is trained, whatever that is in.
        "pure_bf16": is_half and not is_deepspeed,
        "upcast_layernorm": False,
        "upcast_lmhead_output": False,
    }
    if adapters is None:
        return {**task, "finetuning_type": "full", **dtypes}
    settings = {
        **task,
        "finetuning_type": "lora",
        "lora_rank": adapters.rank,
        "lora_alpha": int(adapters.alpha),
        "lora_dropout": adapters.dropout,
        "lora_target": ",".join(adapters.modules),
        **dtypes,
    }
    if adapters.is_quantised:
        settings |= {
            "quantization_method": "bnb",
            "quantization_bit": adapters.base_bits,
            "quantization_type": "nf4",
            "double_quantization": adapters.has_double_quantization,
        }
    return settings


def _batch(spec: RunSpec) -> dict[str, Any]:
    is_packed = spec.padding_share == 0
    return {
        "cutoff_len": spec.sequence_length,
        "packing": is_packed,
        # Samples of a sequence do not see each other; in PyTorch's own attention that takes a mask of all pairs, which is kept.
        "neat_packing": is_packed and spec.attention == "flash",
        "per_device_train_batch_size": spec.micro_batch_size,
        "gradient_accumulation_steps": spec.gradient_accumulation_steps,
    }


def _arithmetic(spec: RunSpec) -> dict[str, Any]:
    # Trainer compares its flag with DeepSpeed's section, where weights in bf16 have an fp32 copy too.
    is_bf16_of_deepspeed = spec.framework == "deepspeed" and spec.precision == "bf16"
    return {
        "bf16": spec.precision == "bf16-mixed" or is_bf16_of_deepspeed,
        "fp16": spec.precision == "fp16-mixed",
        "tf32": spec.precision == "tf32",
        "flash_attn": _ATTENTION[spec.attention],
        "disable_gradient_checkpointing": spec.recompute != Recompute.FULL,
        "use_reentrant_gc": finetuners.needs_reentrant(spec),
        "enable_liger_kernel": spec.loss == "fused",
        "torch_compile": spec.compile,
    }


def _layout(spec: RunSpec) -> dict[str, Any]:
    if spec.framework == "deepspeed":
        return {"deepspeed": "ds_config.json"}
    return {} if spec.shards_gradients else {"ddp_find_unused_parameters": False}


def _optimizer(spec: RunSpec) -> dict[str, Any]:
    return {
        "optim": finetuners.optimizer_name(spec),
        **finetuners.adamw_settings(spec),
        "lr_scheduler_type": "cosine_with_min_lr",
        "lr_scheduler_kwargs": {"min_lr_rate": finetuners.LEAST_RATE},
        # Below 1 it is a share of the steps.
        "warmup_steps": hyperparameters(spec).warmup_fraction,
    }


def _context(spec: RunSpec) -> dict[str, Any]:
    is_deepspeed = spec.framework == "deepspeed"
    is_quantised = bool(spec.adapters and spec.adapters.is_quantised)
    is_of_bitsandbytes = optimizers()[spec.optimizer].package == "bitsandbytes"
    needed = {
        "deepspeed": is_deepspeed,
        "bitsandbytes": is_quantised or is_of_bitsandbytes,
        "liger-kernel": spec.loss == "fused",
    }
    return {
        "mixed_precision": _mixed_precision(spec),
        "release": packages()["llamafactory"].newest,
        "transformers": released_with("llamafactory")["transformers"],
        "packages": [name for name, is_needed in needed.items() if is_needed],
        "sections": sections(spec),
        "is_fsdp": spec.shards_gradients and not is_deepspeed,
        "settings": deepspeed.settings(spec),
    }


def _mixed_precision(spec: RunSpec) -> str:
    """Return Accelerate's: with any it makes fp32 of every trained weight that it shards."""
    if spec.weight_dtype == "bfloat16":
        return "no"
    return {"fp16-mixed": "fp16", "bf16-mixed": "bf16"}.get(spec.precision, "no")


def _more_templates(spec: RunSpec) -> dict[str, str]:
    sharded = {"accelerate.yaml": "llama-factory/accelerate.yaml"} if spec.shards_gradients else {}
    return deepspeed.files(spec) or sharded


TARGET = Target(
    name="llama-factory",
    summary="LLaMA-Factory 0.9.5, told by `config.yaml` alone; what follows `launch.sh` goes to it as `key=value`, and wins"
    " over it.",
    templates={
        "config.yaml": "llama-factory/config.yaml",
        "dataset_info.json": "llama-factory/dataset_info.json",
        "launch.sh": "llama-factory/launch.sh",
        "requirements.txt": "llama-factory/requirements.txt",
    },
    more_templates=_more_templates,
    context=_context,
    launch_template="finetuners/launch.md",
)
