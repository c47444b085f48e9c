"""axolotl, as a configuration alone; with DeepSpeed behind it where the plan is for that."""

from typing import Any

from planner.catalog.packages import packages
from planner.domain.strategy import ZERO_3, Recompute
from planner.generate import deepspeed, finetuners
from planner.generate.context import attention_name, liger_kernels
from planner.generate.hyperparameters import hyperparameters
from planner.generate.run_spec import RunSpec
from planner.generate.target import Target
from planner.targets.stored_weights import DEQUANTIZERS

_INT8, _NF4 = 8, 4


def sections(spec: RunSpec) -> dict[str, dict[str, Any]]:
    """Return config.yaml's settings under what they are about, but for the data.

    What axolotl would set by itself, and memory or time depend on, is written too: kernels of adapters, packing, dtypes.
    Source: axolotl 0.19.0, utils/schemas/config.py AxolotlInputConfig, integrations/liger/args.py.
    """
    return {
        "the model": _model(spec),
        "what is trained": _trained(spec),
        "tokens and sequences of a step": _batch(spec),
        "arithmetic": _arithmetic(spec),
        "who does what": _layout(spec),
        "optimizer": _optimizer(spec),
        "the run": {
            **finetuners.run_settings(spec, epochs="num_epochs"),
            "auto_resume_from_checkpoints": True,
            "val_set_size": 0.0,
            "dataset_prepared_path": "prepared",
            "dataloader_prefetch_factor": 2,
            "dataloader_pin_memory": True,
        },
    }


def _model(spec: RunSpec) -> dict[str, Any]:
    settings: dict[str, Any] = {"base_model": spec.model}
    if not spec.model.startswith("/"):
        settings["revision_of_model"] = spec.revision
    if dequantizer := DEQUANTIZERS.get(spec.stored_in):
        settings["model_quantization_config"] = dequantizer
        settings["model_quantization_config_kwargs"] = {"dequantize": True}
    return settings


def _trained(spec: RunSpec) -> dict[str, Any]:
    adapters = spec.adapters
    if adapters is None:
        return {"load_in_8bit": False, "load_in_4bit": False}
    kernels = ("mlp", "qkv", "o", "embedding")
    settings: dict[str, Any] = {
        "adapter": "qlora" if adapters.base_bits == _NF4 else "lora",
        "load_in_8bit": adapters.base_bits == _INT8,
        "load_in_4bit": adapters.base_bits == _NF4,
        "lora_r": adapters.rank,
        "lora_alpha": int(adapters.alpha),
        "lora_dropout": adapters.dropout,
        "lora_target_modules": list(adapters.modules),
        "peft_autocast_adapter_dtype": adapters.is_fp32,
        **{f"lora_{kernel}_kernel": False for kernel in kernels},
    }
    if adapters.base_bits == _NF4:
        settings["bnb_config_kwargs"] = {
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": adapters.has_double_quantization,
            "bnb_4bit_quant_storage": spec.weight_dtype,
        }
    return settings


def _batch(spec: RunSpec) -> dict[str, Any]:
    return {
        "sequence_len": spec.sequence_length,
        "excess_length_strategy": "truncate",
        "sample_packing": spec.padding_share == 0,
        "pad_to_sequence_len": True,
        "micro_batch_size": spec.micro_batch_size,
        "gradient_accumulation_steps": spec.gradient_accumulation_steps,
    }


def _arithmetic(spec: RunSpec) -> dict[str, Any]:
    is_sixteen = {"bf16": spec.precision in {"bf16", "bf16-mixed"}}
    is_sixteen["fp16"] = spec.precision == "fp16-mixed"
    attention: dict[str, Any] = {"attn_implementation": attention_name(spec)}
    if spec.attention == "sdpa" and spec.padding_share == 0:
        # Samples of a sequence do not see each other: without a mask of all pairs, which would be kept.
        attention["sdpa_varlen"] = True
    return {
        **is_sixteen,
        "tf32": spec.precision == "tf32",
        **attention,
        "gradient_checkpointing": spec.recompute == Recompute.FULL,
        "gradient_checkpointing_kwargs": {"use_reentrant": finetuners.needs_reentrant(spec)},
        "activation_offloading": False,
        "torch_compile": spec.compile,
        "chunked_cross_entropy": False,
        **_liger(spec),
    }


def _liger(spec: RunSpec) -> dict[str, Any]:
    if spec.loss != "fused":
        return {}
    kernels = liger_kernels(spec)
    return {
        "plugins": ["axolotl.integrations.liger.LigerPlugin"],
        "liger_fused_linear_cross_entropy": True,
        "liger_cross_entropy": False,
        "liger_rope": kernels.get("rope", True),
        "liger_rms_norm": kernels.get("rms_norm", True),
        "liger_layer_norm": True,
        "liger_glu_activation": kernels.get("swiglu", True),
    }


def _layout(spec: RunSpec) -> dict[str, Any]:
    if spec.framework == "deepspeed":
        return {"deepspeed": "ds_config.json"}
    if not spec.shards_gradients:
        return {"ddp_find_unused_parameters": False}
    is_quantised = bool(spec.adapters and spec.adapters.is_quantised)
    return {
        "fsdp_version": 2,
        "fsdp_config": {
            "reshard_after_forward": spec.zero_stage == ZERO_3,
            "offload_params": spec.offloads_optimizer,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "cpu_ram_efficient_loading": not is_quantised,
            "activation_checkpointing": False,
            "state_dict_type": "SHARDED_STATE_DICT",
            "final_state_dict_type": "FULL_STATE_DICT",
        },
        "dp_replicate_size": spec.data_parallel_replicate_size,
        "dp_shard_size": spec.data_parallel_shard_size,
        "context_parallel_size": spec.context_parallel_size,
        **({"heads_k_stride": 1} if spec.context_parallel_size > 1 else {}),
    }


def _optimizer(spec: RunSpec) -> dict[str, Any]:
    return {
        "optimizer": finetuners.optimizer_name(spec),
        **finetuners.adamw_settings(spec),
        "lr_scheduler": "cosine",
        "cosine_min_lr_ratio": finetuners.LEAST_RATE,
        "warmup_ratio": hyperparameters(spec).warmup_fraction,
    }


def _context(spec: RunSpec) -> dict[str, Any]:
    return {
        "sections": sections(spec),
        "release": packages()["axolotl"].newest,
        "settings": deepspeed.settings(spec),
    }


TARGET = Target(
    name="axolotl",
    summary="axolotl 0.19.0, told by `config.yaml` alone; what follows `launch.sh` goes to `axolotl train`, and wins over"
    " it.",
    templates={
        "config.yaml": "axolotl/config.yaml",
        "launch.sh": "axolotl/launch.sh",
        "requirements.txt": "axolotl/requirements.txt",
    },
    more_templates=deepspeed.files,
    context=_context,
    launch_template="finetuners/launch.md",
)
