"""Hugging Face Accelerate, started by `accelerate launch`; with DeepSpeed where the plan is for that."""

from collections.abc import Mapping
from typing import Any

from planner.generate import deepspeed
from planner.generate.bundle import Bundle
from planner.generate.families import undividable
from planner.generate.target import Target

_PRECISION = {"fp16-mixed": "fp16", "bf16-mixed": "bf16"}


def _is_deepspeed(bundle: Bundle) -> bool:
    return bundle.framework == "deepspeed"


def _refusal(bundle: Bundle) -> str | None:
    if _is_deepspeed(bundle):
        is_divided = "with DeepSpeed it divides the data, not the model, over GPUs"
        return is_divided if bundle.splits_the_model else deepspeed.zero_refusal(bundle)
    shards, replicas = bundle.data_parallel_shard_size, bundle.data_parallel_replicate_size
    is_local = bundle.synchronize_every > 1
    reasons = {
        "Accelerate recomputes whole blocks or nothing": bundle.recompute == "selective",
        "FSDP moves the parameters to host memory together with the optimizer's states": (
            bundle.offload == "optimizer"
        ),
        "only FSDP (ZeRO-2 and 3) has parameters wait in host memory": (
            bundle.offload != "none" and not bundle.shards_parameters
        ),
        "ZeRO-1 divides the optimizer's states over all data-parallel ranks": (
            bundle.zero_stage == 1 and replicas > 1 and shards > 1
        ),
        "its LocalSGD averages parameters between whole replicas, without ZeRO": (
            is_local and bundle.zero_stage > 0
        ),
        "LocalSGD averages in the precision of the parameters, not with a loss scale": (
            is_local and bundle.precision == "fp16-mixed"
        ),
    }
    if bundle.splits_the_model:
        reasons |= _divided(bundle)
    return next((reason for reason, applies in reasons.items() if applies), None)


def _divided(bundle: Bundle) -> dict[str, bool]:
    """Say what ParallelismConfig and PyTorch's context_parallel would refuse when the job starts."""
    context, tokens = bundle.context_parallel_size, bundle.sequence_length
    obstacle = undividable(bundle)
    return {
        "Accelerate 1.15 shards no model that transformers 5 divides by tensor parallelism": (
            bundle.tensor_parallel_size > 1 and bundle.shards_parameters
        ),
        "transformers divides by tensor parallelism only the weights that it loads, not random ones": (
            bundle.tensor_parallel_size > 1
        ),
        "it trains without pipelines": bundle.pipeline_parallel_size > 1,
        "it does not divide experts over GPUs": bundle.expert_parallel_size > 1,
        str(obstacle): obstacle is not None,
        "Accelerate makes only attention modules called self_attn causal for a part of a sequence": (
            bundle.model_config.get("model_type") == "gpt2"
        ),
        "Accelerate divides no sequence where a layer has a sliding window": _has_window(bundle),
        "it divides a sequence where FSDP shards the parameters (ZeRO-2 and 3) alone": (
            not bundle.shards_parameters
        ),
        "it divides a sequence in PyTorch's own attention (sdpa) alone": bundle.attention != "sdpa",
        f"{2 * context} pieces of a sequence do not divide {tokens} tokens": tokens % (2 * context)
        > 0,
        "a sequence is divided over GPUs that share all else, not within replicas": (
            bundle.data_parallel_replicate_size > 1
        ),
    }


def _has_window(bundle: Bundle) -> bool:
    """Return whether transformers gives a layer of the model a sliding window, of any length."""
    config = bundle.model_config
    if config.get("model_type") == "mistral":
        return config.get("sliding_window", "transformers' own") is not None
    return bool(config.get("use_sliding_window"))


def _context(bundle: Bundle) -> dict[str, Any]:
    is_deepspeed = _is_deepspeed(bundle)
    context: dict[str, Any] = {
        "accelerate_precision": _PRECISION.get(bundle.precision, "no"),
        "has_context": bundle.context_parallel_size > 1,
        "is_deepspeed": is_deepspeed,
        "is_hybrid": bundle.shards_parameters and bundle.data_parallel_replicate_size > 1,
        "is_zero_1": bundle.zero_stage == 1 and not is_deepspeed,
        "uses_ddp": not bundle.shards_parameters and not is_deepspeed,
    }
    if not is_deepspeed:
        return context
    # ZeRO decides when gradients are reduced, and has an fp32 copy of every weight.
    own = {"is_sharded": False, "weight_dtype": "float32", "settings": deepspeed.settings(bundle)}
    return context | own


def _more_templates(bundle: Bundle) -> Mapping[str, str]:
    return {"ds_config.json": "deepspeed/ds_config.json"} if _is_deepspeed(bundle) else {}


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
