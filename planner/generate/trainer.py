"""TRL's SFTTrainer for text, transformers' Trainer for the rest; with DeepSpeed behind it where the plan is for that."""

from collections.abc import Mapping
from typing import Any

from planner.domain.job import OF_PAIRS, POST_TRAINING
from planner.domain.rollout import Rollout
from planner.domain.strategy import ZERO_3, Recompute
from planner.generate import deepspeed
from planner.generate.context import COMPUTE_DTYPES, attention_name, liger_kernels
from planner.generate.hyperparameters import hyperparameters, starts_from_weights
from planner.generate.programs import KEPT, save_every
from planner.generate.run_spec import Adapters, RunSpec
from planner.generate.target import SHARED, Target
from planner.targets.common import WITH_INDEXERS, tasks
from planner.targets.optimizers import optimizers

_AUTO = "auto"
_INT8 = 8
_LOADING_SECONDS = 1800.0
"""That a server may take until it has read its model; judgement."""
_WORKERS = 4
"""Processes of a rank that decode images or sounds; judgement, two CPUs for each GPU being usual."""


def training_arguments(spec: RunSpec) -> dict[str, Any]:
    """Return the YAML file of a run: what Trainer, and for text TRL, must know of the plan.

    Source: https://huggingface.co/docs/transformers/main_classes/trainer and /docs/trl/sft_trainer
    """
    return {
        **_model(spec),
        **(_text(spec) if _is_text(spec) else _samples(spec)),
        **_batch(spec),
        **_optimizer(spec),
        **_precision(spec),
        **_kernels(spec),
        **_parallelism(spec),
        "output_dir": "output",
        "save_steps": save_every(spec),
        "save_total_limit": KEPT,
        "logging_steps": 1,
        "disable_tqdm": True,
    }


def _is_text(spec: RunSpec) -> bool:
    return spec.task == "causal-lm" or spec.job in OF_PAIRS


def _is_deepspeed(spec: RunSpec) -> bool:
    return spec.framework == "deepspeed"


def _is_fsdp(spec: RunSpec) -> bool:
    return bool(spec.shards_gradients) and not _is_deepspeed(spec)


def _weight_dtype(spec: RunSpec) -> str:
    # ZeRO has an fp32 copy of every weight.
    return "float32" if _is_deepspeed(spec) and not spec.adapters else spec.weight_dtype


def _model(spec: RunSpec) -> dict[str, Any]:
    is_other = spec.revision != "main" and starts_from_weights(spec)
    return {
        "model_name_or_path": spec.model,
        **({"model_revision": spec.revision} if is_other else {}),
        "dtype": _weight_dtype(spec),
        "attn_implementation": attention_name(spec),
        **(_lora(spec, spec.adapters) if spec.adapters else {}),
    }


def _lora(spec: RunSpec, adapters: Adapters) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "use_peft": True,
        "lora_r": adapters.rank,
        "lora_alpha": int(adapters.alpha) if adapters.alpha.is_integer() else adapters.alpha,
        "lora_dropout": adapters.dropout,
        "lora_target_modules": list(adapters.modules),
    }
    if spec.task != "causal-lm":
        settings["lora_task_type"] = "SEQ_CLS"  # the score is trained whole beside them
    if adapters.base_bits == _INT8:
        return settings | {"load_in_8bit": True}
    if not adapters.is_quantised:
        return settings
    # FSDP shards floats alone: packed weights are called floats of the dtype that it gathers others in.
    storage = {"bnb_4bit_quant_storage": spec.weight_dtype} if spec.shards_gradients else {}
    twice = {"use_bnb_nested_quant": adapters.has_double_quantization}
    return settings | {"load_in_4bit": True, **twice, **storage}


def _text(spec: RunSpec) -> dict[str, Any]:
    """Return TRL's own arguments: what is packed, and that answers alone are learned of conversations."""
    if spec.rollout:
        return _generation(spec, spec.rollout)
    if spec.job in OF_PAIRS:
        is_before = spec.reference_model == "precomputed"
        early = {"precompute_ref_log_probs": True} if is_before else {}
        return {"max_length": spec.sequence_length, **early}
    strategy = "bfd" if spec.attention == "flash" else "wrapped"
    packed = {"packing": True, "packing_strategy": strategy} if not spec.padding_share else {}
    return {"max_length": spec.sequence_length, **packed, "assistant_only_loss": True}


def _generation(spec: RunSpec, rollout: Rollout) -> dict[str, Any]:
    """Return GRPOConfig's side of what is generated; of a server its own command has the rest."""
    settings = {
        "num_generations": rollout.num_generations,
        "max_completion_length": rollout.max_completion_length,
        "beta": rollout.beta,
        "use_vllm": rollout.vllm_mode != "none",
        "vllm_max_model_length": spec.sequence_length,
    }
    if rollout.vllm_mode == "server":
        own = {} if spec.generates_on_own_node else {"vllm_server_host": "127.0.0.1"}
        return settings | {"vllm_mode": "server", "vllm_server_timeout": _LOADING_SECONDS, **own}
    if rollout.vllm_mode == "none":
        return settings
    return settings | {
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": rollout.vllm_gpu_memory_utilization,
        "vllm_tensor_parallel_size": rollout.vllm_tensor_parallel_size,
        "vllm_enable_sleep_mode": True,
    }


def _samples(spec: RunSpec) -> dict[str, Any]:
    if tasks()[spec.task].data_packages:  # decoded in the loader's workers
        return {
            "max_length": spec.sequence_length,
            "dataloader_num_workers": _WORKERS,
            "remove_unused_columns": False,
        }
    target = {"max_target_length": spec.target_length or spec.sequence_length}
    return {"max_length": spec.sequence_length, **(target if spec.task == "seq2seq-lm" else {})}


def _batch(spec: RunSpec) -> dict[str, Any]:
    length = {"max_steps": spec.run_steps} if spec.run_steps else {"num_train_epochs": 1}
    return {
        "per_device_train_batch_size": spec.micro_batch_size,
        "gradient_accumulation_steps": spec.gradient_accumulation_steps,
        **length,
    }


def _optimizer(spec: RunSpec) -> dict[str, Any]:
    adamw, name = hyperparameters(spec), _optim(spec)
    return {
        **({"optim": name} if name else {}),
        "learning_rate": adamw.learning_rate,
        "adam_beta2": adamw.beta2,
        "weight_decay": adamw.weight_decay,
        "warmup_steps": adamw.warmup_fraction,
        "lr_scheduler_type": "cosine_with_min_lr",
        "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
    }


def _optim(spec: RunSpec) -> str:
    """Return what Trainer calls the plan's optimizer; "" where it has none of the same states."""
    if spec.optimizer == "adamw" and (_is_deepspeed(spec) or spec.offloads_optimizer):
        return "adamw_torch_fused"  # it runs on GPUs and CPUs alike, with nothing to compile
    if spec.optimizer == "lion":
        return ""  # to which it would give Adam's second beta
    return optimizers()[spec.optimizer].in_trainer


def _precision(spec: RunSpec) -> dict[str, bool]:
    # Trainer compares its flag with DeepSpeed's section, where weights in bf16 have an fp32 copy too.
    is_bf16 = spec.precision == "bf16-mixed" or (_is_deepspeed(spec) and spec.precision == "bf16")
    # TRL takes bf16 where neither is said.
    return {"bf16": is_bf16} | ({"fp16": True} if spec.precision == "fp16-mixed" else {})


def _kernels(spec: RunSpec) -> dict[str, Any]:
    settings: dict[str, Any] = {"torch_compile": True} if spec.compile else {}
    if spec.loss == "fused":
        kernels = liger_kernels(spec)
        if _is_text(spec):  # TRL fuses the head and the loss itself, whatever the plan's loss is
            kernels["fused_linear_cross_entropy"] = False
        settings |= {"use_liger_kernel": True, "liger_kernel_config": kernels}
    return settings


def _parallelism(spec: RunSpec) -> dict[str, Any]:
    is_recomputed = spec.recompute == Recompute.FULL
    recomputed = {"activation_checkpointing": is_recomputed}
    if _is_deepspeed(spec):
        return recomputed | {"deepspeed": "ds_config.json"}
    if not _is_fsdp(spec):
        # Trainer would have DDP look through every graph for parameters without a gradient.
        has_some = spec.model_config.get("model_type") in WITH_INDEXERS
        return recomputed | {"ddp_find_unused_parameters": has_some}
    fsdp = {
        "version": 2,
        "reshard_after_forward": spec.zero_stage == ZERO_3,
        "cpu_offload": spec.offloads_optimizer,
        # PEFT does not find its modules inside FSDP's wrappers: transformers recomputes there.
        "activation_checkpointing": is_recomputed and not spec.adapters,
        # Accelerate would leave quantised weights unread on all ranks but one, and TRL those that compute before the run.
        "cpu_ram_efficient_loading": not (spec.adapters and spec.adapters.is_quantised)
        and spec.reference_model != "precomputed",
        "state_dict_type": "SHARDED_STATE_DICT",
    }
    # Trainer would hold whole gradients on every rank until the last micro-batch.
    reduced = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    return {
        "activation_checkpointing": is_recomputed and bool(spec.adapters),
        "fsdp": True,
        "fsdp_config": fsdp,
        "accelerator_config": reduced,
    }


def ds_config(spec: RunSpec) -> dict[str, Any]:
    """Return ds_config.json, in which Trainer's own arguments fill in what they say."""
    filled = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    return deepspeed.settings(spec) | dict.fromkeys((*filled, "gradient_clipping"), _AUTO)


_TASKS: Mapping[str, tuple[str, str]] = {
    "causal-lm": ("causal", "SFTTrainer"),
    "masked-lm": ("texts", "Trainer"),
    "seq2seq-lm": ("texts", "Seq2SeqTrainer"),
    "sequence-classification": ("texts", "Trainer"),
    "token-classification": ("texts", "Trainer"),
    "image-classification": ("images", "Trainer"),
    "automatic-speech-recognition": ("sounds", "Seq2SeqTrainer"),
}
"""Task to the template of its data, and the class that trains it."""


_JOBS: Mapping[str | None, tuple[str, str]] = {
    "dpo": ("pairs", "DPO"),
    "reward": ("pairs", "Reward"),
    "grpo": ("grpo", "GRPO"),
}
"""Jobs to the template of their data, and what TRL's classes for them begin with."""


def _context(spec: RunSpec) -> dict[str, Any]:
    name, method = _JOBS.get(spec.job, ("", ""))
    name, trainer_class = (name, f"{method}Trainer") if method else _TASKS[spec.task]
    is_text = _is_text(spec)
    seq2seq = "transformers.Seq2SeqTrainingArguments"
    plain = seq2seq if trainer_class == "Seq2SeqTrainer" else "transformers.TrainingArguments"
    return {
        "task_file": name,
        "trainer_class": trainer_class,
        "library": "TRL" if is_text else "transformers",
        "settings_file": _settings_file(spec),
        "arguments": training_arguments(spec),
        "settings": ds_config(spec),
        "uses_trl": is_text,
        "loads_reference": spec.reference_model == "loaded",
        "reference_dtype": COMPUTE_DTYPES.get(spec.precision, spec.weight_dtype),
        "arguments_class": f"trl.{method or 'SFT'}Config" if is_text else plain,
        "every_gpu": _every_gpu(spec),
        "starts_from_weights": starts_from_weights(spec),
        "is_fsdp": _is_fsdp(spec),
        "is_deepspeed": _is_deepspeed(spec),
        "shards_on_gpus_alone": _is_fsdp(spec)
        or (_is_deepspeed(spec) and spec.zero_stage == ZERO_3),
        "weight_dtype": _weight_dtype(spec),
        "optim": _optim(spec),
        "casts_adapters": _casts_adapters(spec),
        "saves_half": _saves_half(spec),
    }


def _every_gpu(spec: RunSpec) -> str:
    """Return the GPUs of a node, those that train first and then those that generate alone."""
    own = spec.cuda_visible_devices or ",".join(map(str, range(spec.gpus_per_node)))
    others = spec.rollout.generation_gpus if spec.rollout else None
    every = map(str, range(spec.gpus_per_node + (others or 0)))
    return ",".join([own, *(each for each in every if each not in own.split(","))])


def _casts_adapters(spec: RunSpec) -> bool:
    """Return whether adapters start in another dtype than the plan's."""
    if spec.adapters is None:
        return False
    return spec.adapters.is_fp32 == spec.adapters.is_quantised


def _saves_half(spec: RunSpec) -> bool:
    """Return whether weights in fp32 were rounded to bf16 wherever they were multiplied."""
    is_whole = spec.weight_dtype == "float32" and not spec.adapters and not _is_deepspeed(spec)
    return is_whole and spec.precision == "bf16-mixed"


def _settings_file(spec: RunSpec) -> str:
    if spec.job in POST_TRAINING:
        return f"{spec.job}.yaml"
    return "sft.yaml" if _is_text(spec) else "training.yaml"


_ANSWERS = "trainer/tasks"


def _more_templates(spec: RunSpec) -> dict[str, str]:
    files = {_settings_file(spec): "trainer/settings.yaml", **deepspeed.files(spec)}
    if not starts_from_weights(spec):
        files["config.json"] = "common/config.json"
    if spec.rollout:
        files |= {"rewards.py": f"{_ANSWERS}/rewards.py", "launch.sh": f"{_ANSWERS}/grpo_launch.sh"}
        if spec.rollout.vllm_mode == "server":
            files["serve.sh"] = f"{_ANSWERS}/serve.sh"
    return files


TARGET = Target(
    name="trainer",
    summary="TRL's or transformers' own Trainer; a YAML file beside `train.py` has its arguments,"
    " which all work after `launch.sh` too.",
    templates={
        "train.py": "trainer/train.py",
        **SHARED,
        "launch.sh": "torchrun/launch.sh",
        "requirements.txt": "trainer/requirements.txt",
    },
    more_templates=_more_templates,
    context=_context,
    launch_template="trainer/launch.md",
)
