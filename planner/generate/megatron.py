"""Megatron-LM's pretrain_gpt.py, started by torchrun with the plan as its arguments."""

from typing import Any

from planner.catalog import records
from planner.generate.megatron_model import Options, model_options, model_refusal
from planner.generate.run_spec import RunSpec
from planner.generate.target import Target

_ATTENTION = {"eager": "unfused", "sdpa": "auto", "flash": "flash"}
_RECOMPUTE: dict[str, Options] = {
    "none": {},
    "selective": {"--recompute-granularity": "selective"},
    "full": {
        "--recompute-granularity": "full",
        "--recompute-method": "uniform",
        "--recompute-num-layers": 1,
    },
}


def parallel_options(spec: RunSpec) -> Options:
    """Return how the ranks divide the model and the optimizer.

    Megatron derives the data-parallel size: world / (tensor x pipeline x context).
    """
    options: Options = {
        "--tensor-model-parallel-size": spec.tensor_parallel_size,
        "--pipeline-model-parallel-size": spec.pipeline_parallel_size,
        "--context-parallel-size": spec.context_parallel_size,
    }
    if spec.sequence_parallel and spec.tensor_parallel_size > 1:
        options["--sequence-parallel"] = None
    if spec.virtual_pipeline_size > 1:
        options["--num-virtual-stages-per-pipeline-rank"] = spec.virtual_pipeline_size
    options |= _uneven_stages(spec)
    if spec.zero_stage == 1:
        options |= {
            "--use-distributed-optimizer": None,
            "--overlap-grad-reduce": None,
            "--overlap-param-gather": None,
        }
    if spec.offload == "optimizer":
        # Megatron asserts the second with the first.
        options |= {"--optimizer-cpu-offload": None, "--use-precision-aware-optimizer": None}
    return options


def _uneven_stages(spec: RunSpec) -> Options:
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
    options: Options = {
        "--micro-batch-size": spec.micro_batch_size,
        "--global-batch-size": spec.global_batch_size,
        "--seq-length": spec.sequence_length,
        "--train-iters": 100,
        "--lr": "3e-4",
        "--min-lr": "3e-5",
        "--lr-decay-style": "cosine",
        "--lr-warmup-iters": 10,
        "--weight-decay": 0.01,
        "--adam-beta2": 0.999,
        "--clip-grad": 1.0,
        "--eval-iters": 0,
        "--log-interval": 1,
        "--log-throughput": None,
        "--distributed-timeout-minutes": 30,
        "--attention-backend": _ATTENTION[spec.attention],
    }
    if spec.precision != "fp32":
        options["--fp16" if spec.precision == "fp16-mixed" else "--bf16"] = None
    return options | _RECOMPUTE[spec.recompute]


def _refusal(spec: RunSpec) -> str | None:
    schedules = records.framework("megatron").capabilities.pipeline_schedules
    reasons = {
        "Megatron-LM's pretrain_gpt.py has no adapters": spec.adapters is not None,
        "its weights are not in the config's dtype beside mixed precision": bool(spec.config_dtype),
        "the distributed optimizer is ZeRO-1: it shards no gradients or parameters": (
            spec.zero_stage > 1
        ),
        "its distributed optimizer shards over all data-parallel ranks": (
            spec.zero_stage == 1 and spec.data_parallel_replicate_size > 1
        ),
        "its weights are 32 bit, or 16 bit with a 32-bit copy": (
            spec.precision in {"tf32", "bf16"}
        ),
        f"its pipelines run {' or '.join(schedules)}": (
            spec.pipeline_parallel_size > 1 and spec.pipeline_schedule not in schedules
        ),
        "only its first and last pipeline stage may differ in layers": _has_odd_stages(spec),
        "its interleaved stages are equal": (
            spec.virtual_pipeline_size > 1 and len(set(spec.layers_per_stage)) > 1
        ),
        "it offloads the optimizer's states alone, and shards them": (
            spec.offload == "optimizer+parameters"
            or (spec.offload == "optimizer" and spec.zero_stage == 0)
        ),
        "its arguments are written for models without experts": spec.expert_parallel_size > 1,
        "it averages gradients every step": spec.synchronize_every > 1,
        "pretrain_gpt.py predicts the next token": spec.task != "causal-lm",
    }
    own = next((reason for reason, applies in reasons.items() if applies), None)
    return own or model_refusal(spec)


def _has_odd_stages(spec: RunSpec) -> bool:
    return len(set(spec.layers_per_stage[1:-1])) > 1


def _context(spec: RunSpec) -> dict[str, Any]:
    return {
        "groups": {
            "model": model_options(spec),
            "parallelism": parallel_options(spec),
            "training": training_options(spec),
        },
        "vocabulary": spec.model_config["vocab_size"],
    }


TARGET = Target(
    name="megatron",
    summary="`pretrain_gpt.py` of Megatron-LM, from random weights; the plan is in the arguments."
    " It has its own data format and checkpoints, and its own arguments: what follows about"
    " `--data`, `--dataset`, `--save-every` and `--resume` is said of the other scripts.",
    templates={"launch.sh": "megatron/launch.sh"},
    refusal=_refusal,
    context=_context,
    launch_template="megatron/launch.md",
)
