"""The words and numbers that the templates of all targets share."""

from dataclasses import asdict
from typing import Any

from planner.core.units import GIB, format_bytes, format_count, format_seconds
from planner.generate.bundle import Bundle

ATTENTION = {"eager": "eager", "sdpa": "sdpa", "flash": "flash_attention_2"}
"""Names that transformers has for the plan's."""

AUTO_CLASSES = {
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "sequence-classification": "AutoModelForSequenceClassification",
}

ZERO = {
    0: "DDP",
    1: "DDP and ZeRO-1",
    2: "FSDP2 (ZeRO-2)",
    3: "FSDP2 (ZeRO-3)",
}
"""By ZeRO stage."""

COMPUTE_DTYPES = {"fp16-mixed": "float16", "bf16-mixed": "bfloat16"}

_DEEPSPEED = {
    0: "DeepSpeed's data parallelism",
    1: "DeepSpeed ZeRO-1",
    2: "DeepSpeed ZeRO-2",
    3: "DeepSpeed ZeRO-3",
}


def common_context(bundle: Bundle) -> dict[str, Any]:
    """Return the bundle's fields and what the templates would otherwise have to compute."""
    world_size = bundle.world_size
    is_alone = world_size == 1 and bundle.zero_stage == 0
    return asdict(bundle) | {
        "world_size": world_size,
        "data_parallel_size": bundle.data_parallel_size,
        "last_node": bundle.nodes - 1,
        "gpus": "1 GPU" if world_size == 1 else f"{bundle.nodes} x {bundle.gpus_per_node} GPUs",
        "strategy": strategy_name(bundle),
        "layout": _layout(bundle),
        "model_ranks": world_size // bundle.data_parallel_size,
        "is_split": bundle.splits_the_model,
        "is_local": bundle.synchronize_every > 1,
        "is_alone": is_alone,
        "is_replicated": not is_alone and not bundle.shards_parameters,
        "is_sharded": bundle.shards_parameters,
        "is_causal": bundle.task == "causal-lm",
        "is_masked": bundle.task == "masked-lm",
        "is_classified": bundle.task == "sequence-classification",
        "corpus": "texts.jsonl" if bundle.task == "sequence-classification" else "corpus.txt",
        "is_recomputed": bundle.recompute == "full",
        "learning_rates": {factor: f"{3e-4 * factor**0.5:.2g}" for factor in (0.5, 1, 2)},
        "needs_scaler": bundle.precision == "fp16-mixed",
        "auto_class": AUTO_CLASSES[bundle.task],
        "attention": ATTENTION[bundle.attention],
        "weight_dtype": "bfloat16" if bundle.precision == "bf16" else "float32",
        "compute_dtype": COMPUTE_DTYPES.get(bundle.precision),
        "versions": {name: text.partition("+")[0] for name, text in bundle.versions.items()},
        "tokens_per_step": format_count(bundle.global_batch_size * bundle.sequence_length),
        "expected_peak_gib": round(bundle.expected_peak_bytes / GIB, 2),
        "peak_memory": format_bytes(bundle.expected_peak_bytes),
        "reserved_memory": format_bytes(bundle.expected_reserved_bytes),
        "step_time": format_seconds(bundle.expected_step_seconds),
        "tokens_per_second_per_gpu": f"{bundle.expected_tokens_per_second_per_gpu:,.0f}",
        "tokens_per_second": f"{bundle.expected_tokens_per_second_per_gpu * world_size:,.0f}",
    }


def strategy_name(bundle: Bundle) -> str:
    """Return the strategy in a few words, such as "FSDP2 (ZeRO-3), tensor parallelism"."""
    if bundle.world_size == 1 and bundle.zero_stage == 0:
        return "no parallelism"
    names = {
        "local SGD": bundle.synchronize_every > 1,
        f"HSDP (ZeRO-{bundle.zero_stage})": (
            bundle.shards_parameters and bundle.data_parallel_replicate_size > 1
        ),
        _data_parallel(bundle): bundle.data_parallel_size > 1 or bundle.zero_stage > 0,
    }
    first = next((name for name, applies in names.items() if applies), None)
    others = {
        "tensor parallelism": bundle.tensor_parallel_size,
        "a pipeline": bundle.pipeline_parallel_size,
        "context parallelism": bundle.context_parallel_size,
    }
    parts = [first, *(name for name, size in others.items() if size > 1)]
    return ", ".join(part for part in parts if part)


def _data_parallel(bundle: Bundle) -> str:
    """Return how the data-parallel ranks divide the training state, in the framework's words."""
    return (_DEEPSPEED if bundle.framework == "deepspeed" else ZERO)[bundle.zero_stage]


def _layout(bundle: Bundle) -> dict[str, str]:
    """Return the rows of the README's table on who does what: one for each thing chosen."""
    rows = {
        "Data parallel": _data(bundle),
        "Tensor parallel": _tensor(bundle),
        "Pipeline": _pipeline(bundle),
        "Context parallel": _divided(bundle.context_parallel_size, "each sequence"),
        "Recomputed in backward": _RECOMPUTED[bundle.recompute],
        "In host memory": "" if bundle.offload == "none" else bundle.offload.replace("+", " and "),
        "Parameters averaged": (
            f"every {bundle.synchronize_every} steps; gradients are not"
            if bundle.synchronize_every > 1
            else ""
        ),
    }
    return {name: text for name, text in rows.items() if text}


_RECOMPUTED = {
    "none": "",
    "full": "each block",
    "selective": "each block but for attention and every second matrix product",
}


def _data(bundle: Bundle) -> str:
    replicas, shards = bundle.data_parallel_replicate_size, bundle.data_parallel_shard_size
    if replicas > 1 and shards > 1:
        return f"{replicas} replicas of {shards} shards"
    return f"{replicas * shards} GPUs" if replicas * shards > 1 else ""


def _divided(size: int, what: str) -> str:
    return f"{size} GPUs divide {what}" if size > 1 else ""


def _tensor(bundle: Bundle) -> str:
    text = _divided(bundle.tensor_parallel_size, "each matrix")
    return f"{text}, and the sequence between them" if text and bundle.sequence_parallel else text


def _pipeline(bundle: Bundle) -> str:
    if bundle.pipeline_parallel_size == 1:
        return ""
    layers = ", ".join(map(str, bundle.layers_per_stage))
    virtual = bundle.virtual_pipeline_size
    chunks = f", in {virtual} chunks each" if virtual > 1 else ""
    return f"{bundle.pipeline_schedule} over stages of {layers} layers{chunks}"
