"""Adapters beside frozen weights: what the scripts are told of them."""

from typing import Any

from planner.domain.job import Job
from planner.generate.run_spec import Adapters, RunSpec
from planner.parallel.lora import module_names

_INT8 = 8


def adapters_of(job: Job) -> Adapters | None:
    """Return a job's adapters in PEFT's words; None where all weights are trained."""
    lora = job.recipe.lora
    if lora is None:
        return None
    return Adapters(
        rank=lora.rank,
        alpha=lora.alpha,
        dropout=lora.dropout,
        modules=module_names(job.model.model_type, lora.targets),
        base_bits=lora.base_bits,
        has_double_quantization=lora.has_double_quantization,
        is_fp32=not lora.is_half,
    )


def adapter_context(spec: RunSpec) -> dict[str, Any]:
    """Return the words of templates that train adapters."""
    adapters = spec.adapters
    if adapters is None:
        return {"is_quantised": False, "has_sharded_adapters": False}
    alpha = adapters.alpha
    return {
        "is_quantised": adapters.is_quantised,
        "has_sharded_adapters": (
            (spec.shards_gradients or spec.divides_model) and spec.framework != "deepspeed"
        ),
        "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
        "frozen_weights": _frozen_weights(spec, adapters),
        "adapter_dtype": "float32" if adapters.is_fp32 else spec.weight_dtype,
    }


def _frozen_weights(spec: RunSpec, adapters: Adapters) -> str:
    if adapters.base_bits == _INT8:
        return f"linears of the blocks in 8 bit (LLM.int8), the rest in {spec.weight_dtype}"
    if not adapters.is_quantised:
        return spec.weight_dtype
    twice = ", their constants quantised too" if adapters.has_double_quantization else ""
    return f"linears of the blocks in 4 bit (NF4{twice}), the rest in {spec.weight_dtype}"
