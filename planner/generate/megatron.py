"""Megatron-LM's pretrain_gpt.py, started by torchrun with the plan as its arguments."""

from typing import Any

from planner.catalog import records
from planner.generate.bundle import Bundle
from planner.generate.megatron_model import Options, model_options, model_refusal
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


def parallel_options(bundle: Bundle) -> Options:
    """Return how the ranks divide the model and the optimizer.

    Megatron derives the data-parallel size: world / (tensor x pipeline x context).
    """
    options: Options = {
        "--tensor-model-parallel-size": bundle.tensor_parallel_size,
        "--pipeline-model-parallel-size": bundle.pipeline_parallel_size,
        "--context-parallel-size": bundle.context_parallel_size,
    }
    if bundle.sequence_parallel and bundle.tensor_parallel_size > 1:
        options["--sequence-parallel"] = None
    if bundle.virtual_pipeline_size > 1:
        options["--num-virtual-stages-per-pipeline-rank"] = bundle.virtual_pipeline_size
    options |= _uneven_stages(bundle)
    if bundle.zero_stage == 1:
        options |= {
            "--use-distributed-optimizer": None,
            "--overlap-grad-reduce": None,
            "--overlap-param-gather": None,
        }
    if bundle.offload == "optimizer":
        options |= {"--optimizer-cpu-offload": None, "--use-precision-aware-optimizer": None}
    return options


def _uneven_stages(bundle: Bundle) -> Options:
    layers = bundle.layers_per_stage
    if len(set(layers)) <= 1:
        return {}
    return {
        "--decoder-first-pipeline-num-layers": layers[0],
        "--decoder-last-pipeline-num-layers": layers[-1],
    }


def training_options(bundle: Bundle) -> Options:
    """Return the batch, the precision, what is recomputed and the optimizer."""
    options: Options = {
        "--micro-batch-size": bundle.micro_batch_size,
        "--global-batch-size": bundle.global_batch_size,
        "--seq-length": bundle.sequence_length,
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
        "--attention-backend": _ATTENTION[bundle.attention],
    }
    if bundle.precision != "fp32":
        options["--fp16" if bundle.precision == "fp16-mixed" else "--bf16"] = None
    return options | _RECOMPUTE[bundle.recompute]


def _refusal(bundle: Bundle) -> str | None:
    schedules = records.framework("megatron").capabilities.pipeline_schedules
    reasons = {
        "the distributed optimizer is ZeRO-1: it shards no gradients or parameters": (
            bundle.zero_stage > 1
        ),
        "its distributed optimizer shards over all data-parallel ranks": (
            bundle.zero_stage == 1 and bundle.data_parallel_replicate_size > 1
        ),
        "its weights are 32 bit, or 16 bit with a 32-bit copy": (
            bundle.precision in {"tf32", "bf16"}
        ),
        f"its pipelines run {' or '.join(schedules)}": (
            bundle.pipeline_parallel_size > 1 and bundle.pipeline_schedule not in schedules
        ),
        "only its first and last pipeline stage may differ in layers": _has_odd_stages(bundle),
        "its interleaved stages are equal": (
            bundle.virtual_pipeline_size > 1 and len(set(bundle.layers_per_stage)) > 1
        ),
        "it offloads the optimizer's states alone, and shards them": (
            bundle.offload == "optimizer+parameters"
            or (bundle.offload == "optimizer" and bundle.zero_stage == 0)
        ),
        "its arguments are written for models without experts": bundle.expert_parallel_size > 1,
        "it averages gradients every step": bundle.synchronize_every > 1,
        "pretrain_gpt.py predicts the next token": bundle.task != "causal-lm",
    }
    own = next((reason for reason, applies in reasons.items() if applies), None)
    return own or model_refusal(bundle)


def _has_odd_stages(bundle: Bundle) -> bool:
    return len(set(bundle.layers_per_stage[1:-1])) > 1


def _context(bundle: Bundle) -> dict[str, Any]:
    return {
        "groups": {
            "model": model_options(bundle),
            "parallelism": parallel_options(bundle),
            "training": training_options(bundle),
        },
        "vocabulary": bundle.model_config["vocab_size"],
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
