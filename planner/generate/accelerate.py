"""Hugging Face Accelerate, started by `accelerate launch`; with DeepSpeed where the plan is for that."""

from collections.abc import Mapping
from typing import Any

from planner.generate import deepspeed
from planner.generate.adapters import adapter_obstacles
from planner.generate.families import undividable
from planner.generate.run_spec import RunSpec
from planner.generate.target import Target

_PRECISION = {"fp16-mixed": "fp16", "bf16-mixed": "bf16"}


def _is_deepspeed(spec: RunSpec) -> bool:
    return spec.framework == "deepspeed"


def _refusal(spec: RunSpec) -> str | None:
    frozen = next((why for why, applies in adapter_obstacles(spec).items() if applies), None)
    if frozen:
        return frozen
    if _is_deepspeed(spec):
        is_divided = "with DeepSpeed it divides the data, not the model, over GPUs"
        return is_divided if spec.is_model_parallel else deepspeed.zero_refusal(spec)
    shards, replicas = spec.data_parallel_shard_size, spec.data_parallel_replicate_size
    is_local = spec.synchronize_every > 1
    reasons = {
        "Accelerate recomputes whole blocks or nothing": spec.recompute == "selective",
        "FSDP moves the parameters to host memory together with the optimizer's states": (
            spec.offload == "optimizer"
        ),
        "only FSDP (ZeRO-2 and 3) has parameters wait in host memory": (
            spec.offload != "none" and not spec.shards_parameters
        ),
        "ZeRO-1 divides the optimizer's states over all data-parallel ranks": (
            spec.zero_stage == 1 and replicas > 1 and shards > 1
        ),
        "its LocalSGD averages parameters between whole replicas, without ZeRO": (
            is_local and spec.zero_stage > 0
        ),
        "a loss scale in fp16 needs weights in fp32": (
            spec.precision == "fp16-mixed" and bool(spec.config_dtype)
        ),
        "LocalSGD averages in the precision of the parameters, not with a loss scale": (
            is_local and spec.precision == "fp16-mixed"
        ),
    }
    if spec.is_model_parallel:
        reasons |= _divided(spec)
    return next((reason for reason, applies in reasons.items() if applies), None)


def _divided(spec: RunSpec) -> dict[str, bool]:
    """Say what ParallelismConfig and PyTorch's context_parallel would refuse when the job starts."""
    context, tokens = spec.context_parallel_size, spec.sequence_length
    obstacle = undividable(spec)
    return {
        "Accelerate 1.15 shards no model that transformers 5 divides by tensor parallelism": (
            spec.tensor_parallel_size > 1 and spec.shards_parameters
        ),
        "transformers divides by tensor parallelism only the weights that it loads, not random ones": (
            spec.tensor_parallel_size > 1
        ),
        "it trains without pipelines": spec.pipeline_parallel_size > 1,
        "it does not divide experts over GPUs": spec.expert_parallel_size > 1,
        str(obstacle): obstacle is not None,
        "Accelerate makes only attention modules called self_attn causal for a part of a sequence": (
            spec.model_config.get("model_type") == "gpt2"
        ),
        "Accelerate divides no sequence where a layer has a sliding window": _has_window(spec),
        "it divides a sequence where FSDP shards the parameters (ZeRO-2 and 3) alone": (
            not spec.shards_parameters
        ),
        "it divides a sequence in PyTorch's own attention (sdpa) alone": spec.attention != "sdpa",
        f"{2 * context} pieces of a sequence do not divide {tokens} tokens": tokens % (2 * context)
        > 0,
        "a sequence is divided over GPUs that share all else, not within replicas": (
            spec.data_parallel_replicate_size > 1
        ),
    }


def _has_window(spec: RunSpec) -> bool:
    """Return whether transformers gives a layer of the model a sliding window, of any length."""
    config = spec.model_config
    if config.get("model_type") == "mistral":
        return config.get("sliding_window", "transformers' own") is not None
    return bool(config.get("use_sliding_window"))


def _context(spec: RunSpec) -> dict[str, Any]:
    is_deepspeed = _is_deepspeed(spec)
    context: dict[str, Any] = {
        "accelerate_precision": _precision(spec),
        "has_context": spec.context_parallel_size > 1,
        "is_deepspeed": is_deepspeed,
        "is_hybrid": spec.shards_parameters and spec.data_parallel_replicate_size > 1,
        "is_zero_1": spec.zero_stage == 1 and not is_deepspeed,
        "uses_ddp": not spec.shards_parameters and not is_deepspeed,
    }
    if not is_deepspeed:
        return context
    # ZeRO decides when gradients are reduced, and has an fp32 copy of every weight.
    dtype = spec.weight_dtype if spec.adapters else "float32"
    own = {"is_sharded": False, "weight_dtype": dtype, "settings": deepspeed.settings(spec)}
    return context | own


def _precision(spec: RunSpec) -> str:
    """Return Accelerate's mixed precision.

    With it, Accelerate makes fp32 of every trained weight that it shards; FSDP's own policy alone
    leaves 16-bit weights as they are.
    """
    is_left = spec.shards_parameters and spec.weight_dtype == "bfloat16"
    return "no" if is_left else _PRECISION.get(spec.precision, "no")


def _more_templates(spec: RunSpec) -> Mapping[str, str]:
    return {"ds_config.json": "deepspeed/ds_config.json"} if _is_deepspeed(spec) else {}


TARGET = Target(
    name="accelerate",
    summary="the same training; the parallelism is in `accelerate.yaml`.",
    templates={
        "train.py": "accelerate/train.py",
        "launch.sh": "accelerate/launch.sh",
        "accelerate.yaml": "accelerate/accelerate.yaml",
        "config.json": "common/config.json",
        "requirements.txt": "accelerate/requirements.txt",
    },
    more_templates=_more_templates,
    refusal=_refusal,
    context=_context,
)
