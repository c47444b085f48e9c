"""Optimizers beside AdamW: two processes step as one does, by each script that writes them."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from bitsandbytes.optim.adamw import AdamW8bit
from bitsandbytes.optim.lion import Lion
from launched import ACCUMULATED, BETA2, GPT2, WEIGHT_DECAY, launch, launch_several
from reference import (
    Reference,
    decaying,
    distance,
    mean_distance,
    train,
)
from run_specs import refusal, with_layout

from planner.targets.optimizers import WRITTEN

pytestmark = pytest.mark.usefixtures("preloaded")

ADAM: Mapping[str, Any] = {"betas": (0.9, BETA2)}
CLASSES: Mapping[str, Callable[..., Any]] = {
    "adamw-for-loop": partial(torch.optim.AdamW, **ADAM),
    "adamw-8bit": partial(AdamW8bit, **ADAM),
    "sgd-momentum": partial(torch.optim.SGD, momentum=0.9),
    "adafactor": torch.optim.Adafactor,
    "lion": Lion,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}


def step_with(name: str) -> Callable[[Any], Any]:
    """Return what makes the optimizer of a model."""
    return lambda model: CLASSES[name](decaying(model), weight_decay=WEIGHT_DECAY)


def assert_close(run: Any, reference: Reference) -> None:
    """Compare losses, and weights: what rounds (8 bit, signs) may turn a gradient that is near zero."""
    assert run.losses == pytest.approx(reference.losses, abs=1e-4)
    moved = mean_distance(reference.initial, reference.weights)
    assert mean_distance(run.weights, reference.weights) < 0.01 * moved


def test_two_processes_step_like_one(tmp_path: Path) -> None:
    plans = {name: with_layout(ACCUMULATED, optimizer=name) for name in CLASSES}
    for name, run in launch_several(tmp_path, plans, "--no-dropout").items():
        assert_close(run, train(GPT2, step_with=step_with(name)))


def test_shards_step_like_one(tmp_path: Path) -> None:
    names = ("sgd-momentum", "adagrad", "rmsprop", "adamw-for-loop")
    plans = {name: with_layout(ACCUMULATED, optimizer=name, zero_stage=3) for name in names}
    for name, run in launch_several(tmp_path, plans, "--no-dropout").items():
        reference = train(GPT2, step_with=step_with(name))
        assert distance(run.weights, reference.weights) < 1e-4


@pytest.mark.parametrize(
    ("target", "name"), [("accelerate", "adamw-8bit"), ("trainer", "adafactor")]
)
def test_other_scripts_step_like_one(target: str, name: str, tmp_path: Path) -> None:
    plan = with_layout(ACCUMULATED, optimizer=name)
    run = launch(tmp_path, plan, "--no-dropout", target=target).finish()
    assert_close(run, train(GPT2, step_with=step_with(name)))


@pytest.mark.parametrize("target", ["torchrun", "accelerate", "trainer"])
def test_what_does_not_step_shards_is_refused(target: str) -> None:
    for name, written in WRITTEN.items():
        shards = with_layout(ACCUMULATED, optimizer=name, zero_stage=3)
        assert ("shards of FSDP" in refusal(shards, target)) == (not written.is_for_shards)
        assert not refusal(with_layout(ACCUMULATED, optimizer=name), target)
