"""The words and numbers that the templates of all targets share."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from planner.catalog.packages import OlderCards, default_build, older_cards, packages
from planner.catalog.records import capability_version, vendor
from planner.core.units import GIB, format_bytes, format_count, format_seconds
from planner.domain.job import OF_PAIRS, POST_TRAINING, sample_of
from planner.domain.strategy import Recompute
from planner.generate.adapters import adapter_context
from planner.generate.first_lines import first_lines
from planner.generate.hyperparameters import from_random, hyperparameters, starts_from_weights
from planner.generate.programs import save_every, writing_seconds
from planner.generate.run_spec import RunSpec
from planner.models.architectures.heads import reads_last_token
from planner.targets.common import tasks
from planner.targets.families import has_fused_matrices
from planner.targets.optimizers import optimizers
from planner.targets.stored_weights import DEQUANTIZERS

_GATED_DELTA_RULE = "flash-linear-attention causal-conv1d"
_SCAN_KERNELS: Mapping[str, str] = {
    **dict.fromkeys(
        ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"),
        _GATED_DELTA_RULE,
    ),
    "nemotron_h": "mamba-ssm causal-conv1d",
}
"""Packages whose kernels transformers 5.23 takes in place of PyTorch's own operations, where installed."""

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}

COMPUTE_DTYPES = {"fp16-mixed": "float16", "bf16-mixed": "bfloat16"}

_CORPORA: Mapping[str | None, str] = {
    **dict.fromkeys(OF_PAIRS, "pairs.jsonl"),
    "grpo": "prompts.jsonl",
}
"""What READMEs call the user's file where that is the job's."""

_LONGEST_GRACE = 1800
"""Seconds that launchers wait at the most."""


def common_context(spec: RunSpec) -> dict[str, Any]:
    """Return the spec's fields and what the templates would otherwise have to compute."""
    world_size, task = spec.world_size, tasks()[spec.task]
    is_alone = world_size == 1 and spec.zero_stage == 0
    return asdict(spec) | {
        **spec.contract(),
        "world_size": world_size,
        "tokens_per_sample": spec.tokens_per_sample,
        "data_parallel_size": spec.data_parallel_size,
        "last_node": spec.nodes - 1,
        "gpus": spec.gpus_in_words,
        "model_ranks": world_size // spec.data_parallel_size,
        **_processes(spec),
        "is_model_parallel": spec.divides_model,
        "is_local": spec.synchronize_every > 1,
        "is_alone": is_alone,
        "is_replicated": not is_alone and not spec.shards_gradients,
        "is_sharded": spec.shards_gradients,
        "can_reduce_once": can_reduce_once(spec),
        "is_causal": spec.task == "causal-lm",
        "is_masked": spec.task == "masked-lm",
        "is_classified": task.has_classes and not task.data_packages,
        "is_tagged": spec.task == "token-classification",
        "is_pictured": spec.task == "image-classification",
        "is_heard": spec.task == "automatic-speech-recognition",
        "is_on_hub": not spec.model.startswith("/"),
        "is_text": not task.data_packages,
        "of_pairs": spec.job in OF_PAIRS,
        "sample": task.sample
        if spec.job not in POST_TRAINING
        else sample_of(spec.job, reads_images=False),
        "data_packages": list(task.data_packages),
        "has_classes": task.has_classes,
        "padding": _padding(spec),
        "is_paired": spec.task == "seq2seq-lm",
        "corpus": _CORPORA.get(spec.job, task.corpus),
        **adapter_context(spec),
        **_optimizer(spec),
        "is_recomputed": spec.recompute == Recompute.FULL,
        "adamw": hyperparameters(spec),
        "starts_from_weights": starts_from_weights(spec),
        "from_random": from_random(spec),
        "learning_rates": {each: hyperparameters(spec, each).learning_rate for each in (0.5, 1, 2)},
        # No process has the weights whole.
        "divides_weights": not spec.adapters and bool(spec.shards_gradients or spec.divides_model),
        "has_fused_matrices": has_fused_matrices(spec.model_config),
        "needs_scaler": spec.precision == "fp16-mixed",
        "auto_class": task.auto_class,
        "attention": attention_name(spec),
        "scan_kernels": _SCAN_KERNELS.get(str(spec.model_config.get("model_type"))),
        "flash": _FLASH[spec.flash_version] if spec.attention == "flash" else None,
        "weight_dtype": spec.weight_dtype,
        "other_build": _other_build(spec),
        "default_build": default_build(),
        "torch_index": vendor(spec.vendor).torch_index,
        "monitor": vendor(spec.vendor).monitor,
        "pod_resource": vendor(spec.vendor).pod_resource,
        "docker_options": vendor(spec.vendor).docker_options,
        "dequantizer": DEQUANTIZERS.get(spec.stored_in),
        "compute_dtype": compute_dtype(spec),
        "versions": _plain(spec.versions),
        "ranges": _ranges(spec),
        "tokens_per_step": format_count(spec.global_batch_size * spec.tokens_per_sample),
        "expected_peak_gib": round(spec.expected_peak_bytes / GIB, 2),
        **first_lines(spec),
        # FSDP and DeepSpeed compute with 16-bit weights; autocast rounds what it knows of.
        "rounds_experts": bool(
            spec.has_experts
            and compute_dtype(spec)
            and not spec.shards_gradients
            and spec.framework != "deepspeed"
        ),
        "model_bytes": spec.parameters * _BYTES[spec.weight_dtype],
        "grace_seconds": grace_seconds(spec),
        "is_grace_short": _ending_seconds(spec) > _LONGEST_GRACE,
        "save_every": save_every(spec),
        "peak_memory": format_bytes(spec.expected_peak_bytes),
        "reserved_memory": format_bytes(spec.expected_reserved_bytes),
        "step_time": format_seconds(spec.expected_step_seconds),
        "reduced_once": _reduced_once(spec),
        "liger_kernels": liger_kernels(spec),
        "tokens_per_second_per_gpu": f"{spec.expected_tokens_per_second_per_gpu:,.0f}",
        "tokens_per_second": f"{spec.expected_tokens_per_second_per_gpu * world_size:,.0f}",
    }


def _plain(versions: Mapping[str, str]) -> dict[str, str]:
    return {name: text.partition("+")[0] for name, text in versions.items()}


def _ranges(spec: RunSpec) -> dict[str, str]:
    """Return which releases pip may take: from the oldest tried, below the next that may break what ran.

    That is the next minor release of PyTorch, which others are built against, and the next major one of all others. PyTorch has
    none where another build than the default one is installed first.
    """
    found = {}
    tried = {name: text for name, text in _plain(spec.versions).items() if name in packages()}
    for name, newest in tried.items():
        major, minor = newest.split(".")[:2]
        below = f"{major}.{int(minor) + 1}" if name == "torch" else f"{int(major) + 1}"
        found[name] = f">={spec.oldest_versions.get(name, newest)},<{below}"
    if vendor(spec.vendor).torch_index or _other_build(spec):
        found.pop("torch", None)
    return found


def liger_kernels(spec: RunSpec) -> dict[str, bool]:
    """Return which of Liger's kernels run, by their names in its patches: the loss's, and those left out.

    What is compiled has its norms and gates fused already. Experts stay with the grouped products of
    transformers, which the estimates are of.

    Source: liger-kernel 0.8.5, transformers/monkey_patch.py.
    """
    left_out = {"rope", "rms_norm", "swiglu", "geglu", "relu_squared"} if spec.compile else set()
    if spec.has_experts:
        left_out.add("swiglu")
    kernels = {"fused_linear_cross_entropy": True, "cross_entropy": False}
    return kernels | dict.fromkeys(sorted(left_out), False)


def _other_build(spec: RunSpec) -> OlderCards | None:
    known, version = older_cards(), capability_version(spec.compute_capability)
    return known if () < version < capability_version(known.oldest_capability) else None


def can_reduce_once(spec: RunSpec) -> bool:
    """Return whether the scripts have --no-sync: with the others it is the framework that says when to reduce."""
    is_fully_shard = spec.framework in {"torch", "accelerate"} and spec.shards_gradients
    is_stepped_after = not spec.optimizer_in_backward
    return bool(is_fully_shard) and is_stepped_after and spec.pipeline_parallel_size == 1


def _reduced_once(spec: RunSpec) -> dict[str, Any] | None:
    once = spec.reduced_once
    if once is None or not can_reduce_once(spec):
        return None
    return {
        "step": format_seconds(once.step_seconds),
        "peak": format_bytes(once.peak_bytes),
        "fits": once.fits,
    }


def grace_seconds(spec: RunSpec) -> int:
    """Return what a run that is told to end may take for the running step and a checkpoint, in whole minutes.

        2 * step + checkpoint / (nodes * 1 GB/s), two minutes at the least and half an hour at the most

    Leaves out: what the storage does; the rate is a judgement.
    """
    return min(max(60 * math.ceil(_ending_seconds(spec) / 60), 120), _LONGEST_GRACE)


def _ending_seconds(spec: RunSpec) -> float:
    return 2 * spec.expected_step_seconds + writing_seconds(spec)


def _padding(spec: RunSpec) -> int | None:
    """Return the token that pads a decoder's texts, which it must know to find their last; else None."""
    config = spec.model_config
    if spec.task != "sequence-classification" or not reads_last_token(config.get("model_type")):
        return None
    for name in ("pad_token_id", "eos_token_id"):
        said = config.get(name)
        token = said[0] if isinstance(said, list) and said else said
        if isinstance(token, int) and token >= 0:
            return token
    return 0


def _optimizer(spec: RunSpec) -> dict[str, str | bool]:
    written = optimizers().get(spec.optimizer)
    if written is None:
        return {}
    options = written.options.items()
    is_adam, is_by_torchao = written.has_second_beta, spec.shards_gradients and written.of_shards
    return {
        "has_tensor_rate": bool(is_by_torchao),
        "adam_betas": ", betas=(0.9, args.beta2)" if is_adam else "",
        "adam_items": ', "betas": (0.9, args.beta2)' if is_adam else "",
        "optimizer_class": written.of_shards if is_by_torchao else written.name,
        "optimizer_options": "".join(f", {name}={value!r}" for name, value in options),
        "optimizer_items": "".join(f', "{name}": {value!r}' for name, value in options),
        "optimizer_package": "torchao" if is_by_torchao else written.package,
    }


def _processes(spec: RunSpec) -> dict[str, Any]:
    replicas = spec.data_parallel_replicate_size
    return {
        "can_grow": spec.data_parallel_size > 1 or spec.zero_stage > 0,
        "group_ranks": spec.world_size // (replicas if replicas > 1 else spec.data_parallel_size),
    }


_FLASH: Mapping[int, Mapping[str, str]] = MappingProxyType(
    {
        2: {"module": "flash_attn", "package": "flash-attn"},
        3: {
            "module": "flash_attn_interface",
            "package": "git+https://github.com/Dao-AILab/flash-attention#subdirectory=hopper",
        },
        4: {"module": "flash_attn", "package": "flash-attn-4"},
    }
)
"""What transformers imports for a version of FlashAttention, and what pip builds it from."""


def attention_name(spec: RunSpec) -> str:
    """Return what transformers calls the plan's attention."""
    is_flash = spec.attention == "flash"
    return f"flash_attention_{spec.flash_version}" if is_flash else spec.attention


def compute_dtype(spec: RunSpec) -> str | None:
    """Return what autocast or FSDP computes in, where weights are stored in something else."""
    is_gathered = spec.shards_gradients and spec.adapters is not None and spec.adapters.is_fp32
    if spec.precision == "bf16" and is_gathered:
        return "bfloat16"
    return COMPUTE_DTYPES.get(spec.precision)
