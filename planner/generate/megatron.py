"""Megatron-LM's pretrain_gpt.py, started by torchrun with the plan as its arguments."""

from dataclasses import replace
from typing import Any

from planner.domain.recompute_modules import names_of
from planner.domain.strategy import ALL_LAYERS, Offload
from planner.generate.bridge import RECOMPUTE
from planner.generate.hyperparameters import hyperparameters, starts_from_weights
from planner.generate.megatron_model import Options, megatron_reading, model_options
from planner.generate.run_spec import TRIAL_STEPS, RunSpec
from planner.generate.target import Target

_ATTENTION = {"eager": "unfused", "sdpa": "auto", "flash": "flash"}
_PRECISIONS: dict[str, Options] = {
    "fp32": {},
    "fp16-mixed": {"--fp16": None},
    "bf16-mixed": {"--bf16": None},
    # Transformer Engine's matmuls between layers in 16 bit, whose gradients are reduced so, too.
    "fp8": {"--bf16": None, "--fp8-format": "hybrid", "--grad-reduce-in-bf16": None},
}
_DELAYED: Options = {
    "--fp8-recipe": "delayed",
    "--fp8-amax-history-len": 1024,
    "--fp8-amax-compute-algo": "max",
}
"""Scales of a tensor from what it was before: Megatron's own where nobody says."""


def parallel_options(spec: RunSpec) -> Options:
    """Return how the ranks divide the model and the optimizer.

    Megatron derives the data-parallel size: world / (tensor x pipeline x context).
    """
    options: Options = {
        "--tensor-model-parallel-size": spec.tensor_parallel_size,
        "--pipeline-model-parallel-size": spec.pipeline_parallel_size,
        "--context-parallel-size": spec.context_parallel_size,
    }
    if megatron_reading(spec).model.has_experts:
        options |= {
            "--expert-model-parallel-size": spec.expert_parallel_size,
            "--expert-tensor-parallel-size": int(spec.ranks_per_expert),
        }
    if spec.sequence_parallel and spec.tensor_parallel_size > 1:
        options["--sequence-parallel"] = None
    if spec.virtual_pipeline_size > 1 and not spec.pipeline_layout:
        options["--num-virtual-stages-per-pipeline-rank"] = spec.virtual_pipeline_size
    options |= _uneven_stages(spec)
    if spec.zero_stage == 1:
        options |= {
            "--use-distributed-optimizer": None,
            "--overlap-grad-reduce": None,
            "--overlap-param-gather": None,
        }
    if spec.offload == Offload.OPTIMIZER:
        # Megatron asserts the second with the first.
        options |= {"--optimizer-cpu-offload": None, "--use-precision-aware-optimizer": None}
    return options


def _uneven_stages(spec: RunSpec) -> Options:
    if spec.pipeline_layout:
        chunks = "|".join("t" * layers for layers in spec.pipeline_layout)
        return {"--pipeline-model-parallel-layout": f"E{chunks}L"}
    layers = spec.layers_per_stage
    # Megatron divides the layers of the stages between evenly.
    if len(set(layers)) <= 1:
        return {}
    return {
        "--decoder-first-pipeline-num-layers": layers[0],
        "--decoder-last-pipeline-num-layers": layers[-1],
    }


def training_options(spec: RunSpec) -> Options:
    """Return the batch, the precision, what is recomputed and the optimizer."""
    # From random weights a rate for fine-tuning would be too low.
    adamw = hyperparameters(replace(spec, is_pretrained=starts_from_weights(spec, "megatron")))
    found = megatron_reading(spec)
    has_own_kernels = found.is_latent or found.family.has_sinks
    options: Options = {
        "--micro-batch-size": spec.micro_batch_size,
        "--global-batch-size": spec.global_batch_size,
        "--seq-length": spec.sequence_length,
        "--train-iters": spec.run_steps or TRIAL_STEPS,
        "--lr": adamw.learning_rate,
        "--min-lr": float(f"{adamw.learning_rate / 10:.2g}"),
        "--lr-decay-style": "cosine",
        "--lr-warmup-fraction": adamw.warmup_fraction,
        "--weight-decay": adamw.weight_decay,
        "--adam-beta2": adamw.beta2,
        "--clip-grad": 1.0,
        "--eval-iters": 0,
        "--log-interval": 1,
        "--log-throughput": None,
        "--distributed-timeout-minutes": 30,
        "--exit-signal-handler": None,
        # FlashAttention has no sinks, and takes values narrower than keys on some cards alone.
        "--attention-backend": (
            "auto" if has_own_kernels and spec.attention != "eager" else _ATTENTION[spec.attention]
        ),
    }
    if spec.activation_offload_layers:
        layers = spec.activation_offload_layers
        options |= {"--cpu-offloading": None, "--cpu-offloading-num-layers": layers}
    return options | _precision(spec) | _recomputed(spec)


def _precision(spec: RunSpec) -> Options:
    """Return the precision; MX scales go with e4m3 in both passes, as in Megatron Bridge's recipes."""
    options = _PRECISIONS[spec.precision]
    if spec.precision != "fp8":
        return options
    if spec.fp8_recipe is None:
        return options | _DELAYED
    is_mx = spec.fp8_recipe == "mxfp8"
    return options | {
        "--fp8-recipe": spec.fp8_recipe,
        "--fp8-format": "e4m3" if is_mx else "hybrid",
    }


def _recomputed(spec: RunSpec) -> Options:
    fields = dict(RECOMPUTE[spec.recompute])
    if spec.recompute_modules:
        fields["recompute_modules"] = names_of(spec.recompute_modules)
    elif spec.recompute_layers < ALL_LAYERS:
        fields |= {
            "recompute_method": "block",
            "recompute_num_layers": spec.recompute_layers,
        }
    return {f"--{name.replace('_', '-')}": value for name, value in fields.items()}


def _context(spec: RunSpec) -> dict[str, Any]:
    found = megatron_reading(spec)
    return {
        "groups": {
            "model": model_options(spec),
            "parallelism": parallel_options(spec),
            "training": training_options(spec),
        },
        "vocabulary": found.model.vocab_size,
        "starts_from_weights": starts_from_weights(spec, "megatron"),
        "has_spec": found.is_parallel,
        "shares_norm": found.shares_norm,
    }


def _layer(spec: RunSpec) -> dict[str, str]:
    is_needed = megatron_reading(spec).is_parallel
    return {"parallel_layer.py": "megatron/parallel_layer.py"} if is_needed else {}


TARGET = Target(
    name="megatron",
    summary="`pretrain_gpt.py` of Megatron-LM; the plan is in the arguments."
    " It has its own data format and checkpoints, and its own arguments: what follows about"
    " `--data`, `--dataset`, `--save-every` and `--resume` is said of the other scripts.",
    templates={"launch.sh": "megatron/launch.sh"},
    more_templates=_layer,
    context=_context,
    launch_template="megatron/launch.md",
)
