"""Optimizers beside AdamW: two processes step as one does, by each script that writes them."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import trainer_runs
from bitsandbytes.optim.adamw import AdamW8bit
from bitsandbytes.optim.lion import Lion
from launched import ACCUMULATED, BETA2, GPT2, LLAMA, WEIGHT_DECAY, Run, launch_several
from reference import (
    Reference,
    decaying,
    distance,
    mean_distance,
    train,
)
from run_specs import refusal, with_layout

from planner.targets.optimizers import MUON, optimizers

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


def test_torchao_steps_shards_in_8_bit_and_resumes_exactly(tmp_path: Path) -> None:
    """Of a model whose shards are large enough for states of 8 bit."""
    wide = GPT2 | {"n_embd": 128}
    plan = with_layout(ACCUMULATED, optimizer="adamw-8bit", zero_stage=3, model_config=wide)
    saves = ("--no-dropout", "--save-every", "2", "--output", "FOLDER/checkpoints")
    resumes = ("--no-dropout", "--resume", "FOLDER/checkpoints/step-2")
    (run,) = launch_several(tmp_path, {"shards": plan}, *saves, again=resumes).values()
    reference = train(wide, step_with=step_with("adamw-8bit"))
    assert run.losses == pytest.approx(reference.losses, abs=1e-3)
    moved = mean_distance(reference.initial, reference.weights)
    assert mean_distance(run.weights, reference.weights) < 0.1 * moved
    again = Run(run.folder / "again", run.process)
    assert again.losses == run.losses[2:]
    assert distance(again.weights, run.weights) == 0.0


class MuonAndAdamW:
    """The first for matrices of blocks, the second for the rest; updates as large as AdamW's."""

    def __init__(self, model: Any) -> None:
        named = dict(model.named_parameters())
        inner = [name for name, value in named.items() if ".h." in name and value.ndim == 2]
        rest: list[dict[str, Any]] = [
            {"params": [named[name]], "weight_decay": WEIGHT_DECAY * (named[name].ndim == 2)}
            for name in named.keys() - set(inner)
        ]
        self.muon: torch.optim.Optimizer = torch.optim.Muon(
            [named[name] for name in inner],
            weight_decay=WEIGHT_DECAY,
            adjust_lr_fn="match_rms_adamw",
        )
        self.adamw = torch.optim.AdamW(rest, **ADAM)
        self.param_groups = self.muon.param_groups + self.adamw.param_groups

    def step(self) -> None:
        self.muon.step()
        self.adamw.step()

    def zero_grad(self) -> None:
        self.muon.zero_grad()
        self.adamw.zero_grad()


def test_muon_steps_the_matrices_of_blocks_and_resumes_exactly(tmp_path: Path) -> None:
    """Its iterations in bf16 amplify how two processes round a gradient: what moved is compared."""
    plans = {"muon": with_layout(ACCUMULATED, optimizer=MUON)}
    saves = ("--no-dropout", "--save-every", "2", "--output", "FOLDER/checkpoints")
    resumes = ("--no-dropout", "--resume", "FOLDER/checkpoints/step-2")
    (run,) = launch_several(tmp_path, plans, *saves, again=resumes).values()
    reference = train(GPT2, step_with=MuonAndAdamW)
    assert run.losses == pytest.approx(reference.losses, abs=1e-4)
    moved = mean_distance(reference.initial, reference.weights)
    assert mean_distance(run.weights, reference.weights) < 0.03 * moved
    again = Run(run.folder / "again", run.process)
    assert again.losses == run.losses[2:]
    assert distance(again.weights, run.weights) == 0.0


@pytest.mark.parametrize("name", ["adafactor", "sgd-momentum", "lion"])
def test_trainer_steps_like_one(name: str, tmp_path: Path) -> None:
    """Those that it has no name for, or would step by other betas."""
    plan = with_layout(ACCUMULATED, optimizer=name, model_config=LLAMA)
    run = trainer_runs.train(tmp_path, plan, *trainer_runs.tokens(tmp_path)).finish()
    assert_close(run, train(LLAMA, step_with=step_with(name), rate=trainer_runs.rate))


@pytest.mark.parametrize("target", ["torchrun", "trainer"])
def test_what_does_not_step_shards_is_refused(target: str) -> None:
    for name, written in optimizers().items():
        shards = with_layout(ACCUMULATED, optimizer=name, zero_stage=3)
        steps = written.is_for_shards or (target == "torchrun" and bool(written.of_shards))
        assert ("shards of FSDP" in refusal(shards, target)) == (not steps)
        is_second = name == MUON and target != "torchrun"
        assert (
            "steps two" in refusal(with_layout(ACCUMULATED, optimizer=name), target)
        ) == is_second
