"""Optimizers that the scripts step: which class, with what, and over what it cannot."""

from collections.abc import Mapping
from dataclasses import field
from functools import cache

import numpy as np

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen
from planner.domain.breach import Breach
from planner.domain.job import Job
from planner.domain.optimizer import ADAMW
from planner.domain.strategy import ZERO_1, Strategy
from planner.targets.base import refusal


@frozen
class Written:
    """What a script writes for an optimizer."""

    name: str
    """Of the class, with its package."""
    options: Mapping[str, bool | float] = field(default_factory=dict)
    """Arguments beside the parameters, the learning rate and the decay."""
    package: str = "torch"
    has_second_beta: bool = False
    """Whether it keeps a mean of squares as Adam does, over as many steps as the script is told."""
    is_for_shards: bool = True
    """Whether it steps FSDP2's shards: tried on two processes with PyTorch 2.13 and bitsandbytes 0.50."""
    in_trainer: str = ""
    """What transformers' Trainer calls one of the same states (`optim`); empty where it has none."""
    of_shards: str = ""
    """What steps the shards of the script of PyTorch alone in its place: torchao's class of the same states."""


MUON = "muon"
"""For matrices of blocks alone: the torchrun script steps all else by AdamW."""


@frozen
class _Optimizers:
    source: str
    optimizers: Mapping[str, Written]


@cache
def optimizers() -> Mapping[str, Written]:
    """Return what the scripts of torchrun and trainer write, by the planner's name."""
    return build(_Optimizers, read("scripts", "optimizers"), "scripts/optimizers").optimizers


def adamw(job: Job) -> Breach:
    """Return why a target that steps AdamW alone refuses an optimizer."""
    return refusal(
        job.recipe.optimizer != "adamw",
        "it steps adamw, not {optimizer}",
        "recipe.optimizer",
        hint="--optimizer adamw",
        optimizer=job.recipe.optimizer,
    )


def one_alone(job: Job) -> Breach:
    """Return why a script that steps one optimizer refuses two."""
    return refusal(
        job.recipe.optimizer == MUON,
        "muon steps beside adamw, and only the script of torchrun steps two",
        "recipe.optimizer",
        hint="--optimizer adamw",
    )


def after_backward(job: Job) -> Breach:
    """Return why a script that clips gradients refuses to step within backward."""
    return refusal(
        job.recipe.optimizer_in_backward,
        "it steps the optimizer after backward, once gradients are clipped",
        "recipe.optimizer_in_backward",
        hint="--no-optimizer-in-backward",
    )


def in_backward(job: Job, s: Strategy) -> Breach:
    """Return why the script of PyTorch alone does not step within backward."""
    return refusal(
        job.recipe.optimizer_in_backward & (s.divides_model | (job.recipe.optimizer == MUON)),
        "it steps within backward by one optimizer, and a model that is not divided",
        "recipe.optimizer_in_backward",
        hint="--no-optimizer-in-backward",
    )


def judge(job: Job, s: Strategy, *, has_torchao: bool = False) -> tuple[Breach, ...]:
    """Return why the scripts of torchrun and trainer do not step an optimizer.

    Args:
        job: what is trained.
        s: how.
        has_torchao: whether the script steps shards by torchao where bitsandbytes does not.
    """
    name = job.recipe.optimizer
    written = optimizers()[name]
    is_by_torchao = has_torchao and bool(written.of_shards)
    is_of_torch = written.package == "torch"
    return (
        refusal(
            s.divides_model & (name not in ADAMW),
            "a model that is divided is stepped by adamw, not {name}",
            "recipe.optimizer",
            hint="--optimizer adamw",
            name=name,
        ),
        refusal(
            s.shards_gradients & (not (written.is_for_shards or is_by_torchao)),
            "{name} does not step the shards of FSDP; {those} do",
            "recipe.optimizer",
            hint="--optimizer adamw",
            name=name,
            those=", ".join(kind for kind, each in optimizers().items() if each.is_for_shards),
        ),
        refusal(
            (np.asarray(s.zero_stage) == ZERO_1) & (not is_of_torch),
            "ZeRO-1 deals out the states of PyTorch's own optimizers, not those of {name}",
            "recipe.optimizer",
            name=name,
        ),
        refusal(
            s.is_local & (not is_of_torch),
            "parameters are averaged between replicas that step PyTorch's own optimizers",
            "recipe.optimizer",
        ),
        refusal(
            s.shards_gradients
            & is_by_torchao
            & (s.offloads_optimizer | job.recipe.optimizer_in_backward),
            "torchao's {name} steps shards that wait on the GPU, once backward is through",
            "recipe.optimizer",
            name=name,
        ),
        *(_beside_adamw(job, s) if name == MUON else ()),
    )


def _beside_adamw(job: Job, s: Strategy) -> tuple[Breach, ...]:
    reasons = {
        "ZeRO-1 deals out the states of one optimizer, and muon steps beside adamw": (
            np.asarray(s.zero_stage) == ZERO_1
        ),
        "muon steps matrices, and transformers stacks a layer's experts in one tensor": (
            job.model.has_experts
        ),
        "muon steps whole matrices, not adapters": job.recipe.lora is not None,
        "parameters are averaged between replicas that step one optimizer": s.is_local,
    }
    return tuple(
        refusal(broken, reason, "recipe.optimizer", hint="--optimizer adamw")
        for reason, broken in reasons.items()
    )
