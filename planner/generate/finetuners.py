"""What axolotl's and LLaMA-Factory's configurations say alike."""

from typing import Any

from planner.domain.strategy import ZERO_3
from planner.generate.hyperparameters import hyperparameters
from planner.generate.programs import KEPT, save_every
from planner.generate.run_spec import RunSpec
from planner.targets.optimizers import optimizers

LEAST_RATE = 0.1
"""Of the learning rate, at the end of its cosine."""


def optimizer_name(spec: RunSpec) -> str:
    """Return what Trainer calls the plan's optimizer; DeepSpeed is given PyTorch's, whose fused step runs on CPUs too."""
    if spec.framework == "deepspeed":
        return optimizers()["adamw-fused"].in_trainer
    return optimizers()[spec.optimizer].in_trainer


def run_settings(spec: RunSpec, *, epochs: str) -> dict[str, Any]:
    """Return the plan's steps, or one epoch of the data where nobody says how long the run is, and what it leaves."""
    return {
        **({"max_steps": spec.run_steps} if spec.run_steps else {epochs: 1.0}),
        "seed": 42,
        "output_dir": "checkpoints",
        "save_steps": save_every(spec),
        "save_total_limit": KEPT,
        "save_only_model": False,
        "logging_steps": 1,
        "dataloader_num_workers": 2,
    }


def adamw_settings(spec: RunSpec) -> dict[str, float]:
    """Return what both call alike of the optimizer."""
    adamw = hyperparameters(spec)
    return {
        "learning_rate": adamw.learning_rate,
        "weight_decay": adamw.weight_decay,
        "adam_beta1": 0.9,
        "adam_beta2": adamw.beta2,
        "adam_epsilon": 1e-8,
        "max_grad_norm": 1.0,
    }


def needs_reentrant(spec: RunSpec) -> bool:
    """Return whether blocks are recomputed in the older way: ZeRO-3 gathers 4-bit weights in another shape than it saw.

    Source: axolotl 0.19.0, utils/schemas/validation.py warn_qlora_zero3_w_use_reentrant.
    """
    is_quantised = bool(spec.adapters and spec.adapters.is_quantised)
    return is_quantised and spec.framework == "deepspeed" and spec.zero_stage == ZERO_3
