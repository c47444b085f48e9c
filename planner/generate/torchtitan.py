"""torchtitan's Llama 3, started by torchrun with a configuration written in Python."""

from dataclasses import replace
from typing import Any

from planner.domain.strategy import Recompute
from planner.generate.hyperparameters import hyperparameters, starts_from_weights
from planner.generate.run_spec import RunSpec
from planner.generate.target import Target
from planner.targets.torchtitan import flavor, schedules

_ATTENTION = {"sdpa": "flex", "flash": "varlen"}
_RECOMPUTE = {
    Recompute.NONE: "None",
    Recompute.SELECTIVE: "SelectiveAC.Config()",
    Recompute.FULL: "FullAC.Config()",
}
_CONVERTERS = {
    "rowwise": 'Float8LinearConverter.Config(filter_fqns=["lm_head"], model_compile_enabled=True)',
    "mxfp8": 'MXFP8LinearConverter.Config(fqns=["layers"], model_compile_enabled=True)',
}
"""What has the linears of its blocks multiply in 8 bit, by how they are scaled."""
_DTYPES = {"fp32": ("float32", "float32"), "bf16": ("bfloat16", "bfloat16")}
_MIXED = ("float32", "bfloat16")


def _context(spec: RunSpec) -> dict[str, Any]:
    is_pipeline = spec.pipeline_parallel_size > 1
    chunks = spec.pipeline_parallel_size * spec.virtual_pipeline_size
    passes = spec.gradient_accumulation_steps if is_pipeline else 1
    adamw = hyperparameters(replace(spec, framework="torchtitan"))
    return {
        "adamw": adamw,
        "starts_from_weights": starts_from_weights(spec, "torchtitan"),
        # Of the README's command, as torchtitan counts a warm-up in steps.
        "warmup_steps": max(1, round(adamw.warmup_fraction * spec.steps)),
        "flavor": flavor(spec.model_config),
        "attention_backend": _ATTENTION.get(spec.attention),
        "dtypes": _DTYPES.get(spec.precision, _MIXED),
        "activation_checkpoint": _RECOMPUTE[spec.recompute],
        "converter": _CONVERTERS[spec.fp8_recipe] if spec.fp8_recipe else None,
        "schedule": schedules().get(str(spec.pipeline_schedule)),
        # A pipeline takes all micro-batches of a step at once, and divides them itself.
        "local_batch_size": spec.micro_batch_size * passes,
        "layers_per_chunk": sum(spec.layers_per_stage) // chunks if is_pipeline else None,
    }


TARGET = Target(
    name="torchtitan",
    summary="torchtitan 0.3.0 and its own Llama 3; the plan is in `plan.py`."
    " It has its own arguments: what follows about `--data`, `--save-every` and `--resume` is said"
    " of the other scripts.",
    templates={
        "plan.py": "torchtitan/plan.py",
        "launch.sh": "torchtitan/launch.sh",
        "requirements.txt": "torchtitan/requirements.txt",
    },
    context=_context,
    launch_template="torchtitan/launch.md",
)
