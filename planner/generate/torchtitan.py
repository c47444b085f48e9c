"""torchtitan's own models, started by torchrun with a configuration written in Python."""

from collections.abc import Mapping
from typing import Any

from planner.catalog.packages import released_with
from planner.domain.strategy import PipelineSchedule, Recompute
from planner.generate.hyperparameters import hyperparameters
from planner.generate.run_spec import RunSpec
from planner.generate.target import Target
from planner.generate.torchtitan_model import shape, template
from planner.targets.torchtitan import schedules

_ATTENTION = {"sdpa": "flex", "flash": "varlen"}
_RECOMPUTE = {
    Recompute.NONE: "None",
    Recompute.SELECTIVE: "SelectiveAC.Config()",
    Recompute.FULL: "FullAC.Config()",
}
_LINEARS = {
    "rowwise": "Float8LinearConverter.Config(filter_fqns={skipped}, model_compile_enabled=True)",
    "mxfp8": "MXFP8LinearConverter.Config(fqns={kept}, model_compile_enabled=True)",
}
"""What has linears multiply in 8 bit, by how they are scaled: all but some, or some alone."""
_EXPERTS = {
    "rowwise": "Float8GroupedExpertsConverter.Config(model_compile_enabled=True)",
    "mxfp8": "MXFP8GroupedExpertsConverter.Config(model_compile_enabled=True)",
}
_DTYPES = {"fp32": ("float32", "float32"), "bf16": ("bfloat16", "bfloat16")}
_MIXED = ("float32", "bfloat16")


def _context(spec: RunSpec) -> dict[str, Any]:
    is_piped = spec.pipeline_parallel_size > 1
    passes = spec.gradient_accumulation_steps if is_piped else 1
    adamw, model = hyperparameters(spec), shape(spec)
    return {
        "adamw": adamw,
        # Of the README's command, as torchtitan counts a warm-up in steps.
        "warmup_steps": max(1, round(adamw.warmup_fraction * spec.steps)),
        "shape": model,
        "has_experts": model["has_experts"],
        "attention_backend": _ATTENTION.get(spec.attention),
        "undecayed": r"norm|bias|sinks" if spec.model_config["model_type"] == "gpt_oss" else "norm",
        "dtypes": _DTYPES.get(spec.precision, _MIXED),
        "activation_checkpoint": _RECOMPUTE[spec.recompute],
        "converters": _converters(spec, has_experts=model["has_experts"]),
        "torchao": released_with("torchtitan")["torchao"],
        "schedule": schedules().get(str(spec.pipeline_schedule)),
        "is_piped": is_piped,
        # A pipeline takes all micro-batches of a step at once, and divides them itself.
        "local_batch_size": spec.micro_batch_size * passes,
        "layers_of_stages": layers_of_stages(spec) if is_piped else (),
    }


def _converters(spec: RunSpec, *, has_experts: bool) -> tuple[str, ...]:
    """Return what has a plan's matmuls run in 8 bit: those of linears but the head's and routers', and experts'."""
    if not spec.fp8_recipe:
        return ()
    kept = '["attention", "feed_forward", "shared_experts"]' if has_experts else '["layers"]'
    skipped = '["lm_head", "router.gate"]' if has_experts else '["lm_head"]'
    linears = _LINEARS[spec.fp8_recipe].format(kept=kept, skipped=skipped)
    return (linears, _EXPERTS[spec.fp8_recipe]) if has_experts else (linears,)


def layers_of_stages(spec: RunSpec) -> tuple[int, ...]:
    """Return the layers of each stage in the order in which a token passes them, chunks of a rank apart."""
    ranks, chunks = spec.pipeline_parallel_size, spec.virtual_pipeline_size
    order = list(range(ranks)) * chunks
    if spec.pipeline_schedule == PipelineSchedule.ZERO_BUBBLE_V:
        order = [*range(ranks), *reversed(range(ranks))]
    return tuple(spec.layers_per_stage[rank] // chunks for rank in order)


def _more_templates(spec: RunSpec) -> Mapping[str, str]:
    return {"model.py": template(spec)}


TARGET = Target(
    name="torchtitan",
    summary="torchtitan 0.3.0 and its own model; the plan is in `plan.py`."
    " It has its own arguments: what follows about `--data`, `--save-every` and `--resume` is said"
    " of the other scripts.",
    templates={
        "plan.py": "torchtitan/plan.py",
        "launch.sh": "torchtitan/launch.sh",
        "requirements.txt": "torchtitan/requirements.txt",
    },
    more_templates=_more_templates,
    context=_context,
    launch_template="torchtitan/launch.md",
)
