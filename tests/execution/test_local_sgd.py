"""Replicas that meet every few steps: equal then, apart between, and as two loops would have it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from launched import DEEP_LLAMA, TINY, launch_several
from reference import distance, train_apart
from run_specs import with_layout
from torch import Tensor
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

pytestmark = pytest.mark.usefixtures("preloaded")

TOLERANCE = 1e-5
STEPS = 8


def both(checkpoint: Path, whole: Path) -> list[dict[str, Tensor]]:
    """Return the weights of both processes, which a checkpoint holds apart."""
    dcp_to_torch_save(checkpoint, whole)
    held = torch.load(whole)
    assert len(held) == 2
    return [state["model"] for state in held.values()]


def test_replicas_meet_every_few_steps(tmp_path: Path) -> None:
    apart = with_layout(TINY, model_config=DEEP_LLAMA, synchronize_every=4)
    specs = {"4": apart, "2": replace(apart, synchronize_every=2)}
    arguments = ("--no-dropout", "--steps", str(STEPS), "--save-every", "1")
    runs = launch_several(tmp_path, specs, *arguments, "--output", "FOLDER/checkpoints")
    for every, run in runs.items():
        reference = train_apart(DEEP_LLAMA, every=int(every), steps=STEPS)
        assert run.losses == pytest.approx(reference.losses, abs=TOLERANCE, rel=0)
        assert distance(run.weights, reference.weights) <= TOLERANCE
        for step in range(1, STEPS + 1):
            some, other = both(run.folder / "checkpoints" / f"step-{step}", tmp_path / "whole.pt")
            assert (distance(some, other) == 0) is (step % int(every) == 0)
