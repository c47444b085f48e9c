"""Each parameter is stepped as backward reaches it: the same steps, without a gradient's clipping."""

from pathlib import Path
from typing import Any

import pytest
from launched import ACCUMULATED, GPT2, TINY, Run, launch, launch_several
from reference import assert_parity, train
from run_specs import refusal, with_layout

pytestmark = pytest.mark.usefixtures("preloaded")

WITHIN = with_layout(TINY, optimizer_in_backward=True)
ALONE = with_layout(WITHIN, gpus_per_node=1, micro_batch_size=16, data_parallel_replicate_size=1)
NEVER = 1e9
"""A norm that no gradient has."""


def test_shards_step_within_backward_like_one_process_and_resume_exactly(tmp_path: Path) -> None:
    plans = {str(stage): with_layout(WITHIN, zero_stage=stage) for stage in (2, 3)}
    saves = ("--no-dropout", "--save-every", "2", "--output", "FOLDER/checkpoints")
    resumes = ("--no-dropout", "--resume", "FOLDER/checkpoints/step-2")
    for run in launch_several(tmp_path, plans, *saves, again=resumes).values():
        assert_parity(run, train(GPT2, clip=NEVER))
        assert Run(run.folder / "again", run.process).losses == run.losses[2:]


def test_one_process_steps_within_backward(tmp_path: Path) -> None:
    run = launch(tmp_path, ALONE, "--no-dropout").finish()
    assert_parity(run, train(GPT2, clip=NEVER), world_size=1)
    clipped = with_layout(ALONE, optimizer_in_backward=False)
    after = launch(tmp_path / "after", clipped, "--no-dropout").finish()
    assert run.log[0]["gradient_norm"] == pytest.approx(after.log[0]["gradient_norm"], rel=1e-5)


def test_an_optimizer_in_8_bit_steps_within_backward_too(tmp_path: Path) -> None:
    run = launch(tmp_path, with_layout(ALONE, optimizer="adamw-8bit"), "--no-dropout").finish()
    assert run.losses == pytest.approx(train(GPT2, clip=NEVER).losses, abs=1e-3)


def test_a_second_micro_batch_ends_the_run_with_one_line(tmp_path: Path) -> None:
    run = launch(tmp_path, with_layout(ACCUMULATED, zero_stage=3, optimizer_in_backward=True))
    assert "--batch-size is one micro-batch of each process" in run.fail()


@pytest.mark.parametrize(
    ("target", "layout"),
    [
        ("trainer", {"zero_stage": 3}),
        ("torchrun", {"tensor_parallel_size": 2, "global_batch_size": 8}),
        ("torchrun", {"optimizer": "muon", "gpus_per_node": 1}),
    ],
)
def test_what_does_not_step_within_backward_is_refused(target: str, layout: dict[str, Any]) -> None:
    assert "backward" in refusal(with_layout(WITHIN, **layout), target)
