"""Accelerate shards with FSDP2, and trains like one process; its kernels alone are a CPU's."""

from dataclasses import replace
from pathlib import Path

import pytest
from launched import ACCUMULATED, BERT, LLAMA, TINY, Run, start, write
from reference import assert_parity, distance, expected
from run_specs import with_layout
from test_deepspeed import GLOO_ONLY

from planner.generate import RunSpec

pytestmark = pytest.mark.usefixtures("preloaded")

AS_GPUS = {**GLOO_ONLY, "ACCELERATE_USE_CPU": "false", "ACCELERATE_ENGINE": "fsdp"}
HYBRID = with_layout(
    replace(TINY, model_config=LLAMA),
    gpus_per_node=4,
    micro_batch_size=2,
    gradient_accumulation_steps=2,
    data_parallel_replicate_size=2,
    data_parallel_shard_size=2,
    zero_stage=3,
)


def launch(folder: Path, spec: RunSpec, *arguments: str) -> Run:
    write(folder, spec, "accelerate")
    return start(folder, "bash", "accelerate/launch.sh", "--no-dropout", *arguments, **AS_GPUS)


def shards(run: Run, step: int) -> set[str]:
    """Return the files that FSDP's ranks have written of the optimizer's states."""
    folder = run.folder / "accelerate" / "checkpoints" / f"step-{step}" / "optimizer_0"
    return {path.name for path in folder.glob("*.distcp")}


def test_shards_train_like_one_process(tmp_path: Path) -> None:
    second = with_layout(ACCUMULATED, zero_stage=2, recompute="full")
    third = with_layout(ACCUMULATED, zero_stage=3, model_config=LLAMA)
    save = ("--save-every", "3")
    runs = {
        "gpt2": launch(tmp_path / "2", second, *save),
        "llama": launch(tmp_path / "3", third, *save, "--no-sync"),
    }
    for name, run in runs.items():
        assert_parity(run.finish(), expected(name))
        assert shards(run, 3) == {"__0_0.distcp", "__1_0.distcp"}


def test_masked_shards_train_like_one_process(tmp_path: Path) -> None:
    bert = with_layout(ACCUMULATED, model_config=BERT, task="masked-lm", zero_stage=3)
    assert_parity(launch(tmp_path, bert).finish(), expected("bert"))


def test_replicas_of_shards_train_like_one_process(tmp_path: Path) -> None:
    run = launch(tmp_path, HYBRID, "--save-every", "3")
    assert_parity(run.finish(), expected("llama"), world_size=4)
    assert shards(run, 3) == {f"__{rank}_0.distcp" for rank in range(4)}


def test_shards_resume_exactly(tmp_path: Path) -> None:
    spec = with_layout(TINY, zero_stage=3, precision="bf16-mixed")
    whole = launch(tmp_path / "whole", spec, "--save-every", "1").finish()
    checkpoint = whole.folder / "accelerate" / "checkpoints" / "step-1"
    part = launch(tmp_path / "part", spec, "--resume", str(checkpoint)).finish()
    assert part.losses == whole.losses[1:]
    assert distance(part.weights, whole.weights) == 0
