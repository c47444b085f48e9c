"""The words and numbers that the templates of all targets share."""

from dataclasses import asdict
from typing import Any

from planner.generate.bundle import Bundle
from planner.units import GIB, format_bytes, format_count, format_seconds

ATTENTION = {"eager": "eager", "sdpa": "sdpa", "flash": "flash_attention_2"}
"""Names that transformers has for the plan's."""

AUTO_CLASSES = {"causal-lm": "AutoModelForCausalLM", "masked-lm": "AutoModelForMaskedLM"}

ZERO = {
    0: "DDP",
    1: "DDP and ZeRO-1",
    2: "FSDP2 (ZeRO-2)",
    3: "FSDP2 (ZeRO-3)",
}
"""By ZeRO stage."""

COMPUTE_DTYPES = {"fp16-mixed": "float16", "bf16-mixed": "bfloat16"}


def common_context(bundle: Bundle) -> dict[str, Any]:
    """Return the bundle's fields and what the templates would otherwise have to compute."""
    world_size = bundle.world_size
    is_alone = world_size == 1 and bundle.zero_stage == 0
    return asdict(bundle) | {
        "world_size": world_size,
        "data_parallel_size": bundle.data_parallel_size,
        "last_node": bundle.nodes - 1,
        "gpus": "1 GPU" if world_size == 1 else f"{bundle.nodes} x {bundle.gpus_per_node} GPUs",
        "strategy": "no parallelism" if is_alone else ZERO[bundle.zero_stage],
        "is_alone": is_alone,
        "is_replicated": not is_alone and not bundle.shards_parameters,
        "is_sharded": bundle.shards_parameters,
        "is_masked": bundle.task == "masked-lm",
        "is_recomputed": bundle.recompute == "full",
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
