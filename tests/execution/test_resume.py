"""A run that stops and resumes has the losses of one that never stopped, dropout included."""

from pathlib import Path

import pytest
from launched import DEEP_GPT2, DEEP_LLAMA, TINY, deep, launch, launch_several
from reference import distance, expected
from run_specs import with_layout

from planner.generate import RunSpec

pytestmark = pytest.mark.usefixtures("preloaded")

SAVE = ("--save-every", "1", "--output", "checkpoints")
FP16 = with_layout(TINY, precision="fp16-mixed")


@pytest.mark.parametrize(
    "spec",
    [with_layout(TINY, zero_stage=3), FP16, with_layout(FP16, zero_stage=1)],
    ids=["sharded", "replicated", "scaled"],
)
def test_resuming_repeats_the_uninterrupted_run(spec: RunSpec, tmp_path: Path) -> None:
    whole = launch(tmp_path / "whole", spec, *SAVE).finish()
    checkpoints = whole.folder / "torchrun" / "checkpoints"
    assert {path.name for path in checkpoints.iterdir()} == {"step-1", "step-2", "step-3"}
    part = launch(tmp_path / "part", spec, "--resume", str(checkpoints / "step-1")).finish()
    assert [record["step"] for record in part.log] == [2, 3]
    assert part.losses == whole.losses[1:]
    assert part.weights.keys() == whole.weights.keys()
    assert all(weight.equal(whole.weights[name]) for name, weight in part.weights.items())


def test_divided_models_resume_exactly(tmp_path: Path) -> None:
    tensor = {"tensor_parallel_size": 2, "sequence_parallel": True, "data_parallel_size": 2}
    pipeline = {"pipeline_parallel_size": 2, "data_parallel_size": 2}
    v_shaped = {"pipeline_schedule": "zbv", "virtual_pipeline_size": 2}
    specs = {
        "zero1-pipeline": deep(DEEP_GPT2, zero_stage=1, **pipeline),
        "zero3-tensor": deep(DEEP_GPT2, zero_stage=3, **tensor),
        "scaled-tensor": deep(DEEP_GPT2, precision="fp16-mixed", **tensor),
        "zero2-zbv": deep(DEEP_GPT2, zero_stage=2, **pipeline, **v_shaped),
        "local": with_layout(TINY, gpus_per_node=4, micro_batch_size=4, synchronize_every=2),
    }
    wholes = launch_several(
        tmp_path / "whole", specs, "--save-every", "1", "--output", "FOLDER/checkpoints"
    )
    checkpoint = str(tmp_path / "whole" / "NAME" / "checkpoints" / "step-1")
    parts = launch_several(tmp_path / "part", specs, "--resume", checkpoint)
    for name, part in parts.items():
        whole = wholes[name]
        assert [record["step"] for record in part.log] == [2, 3]
        assert part.losses == whole.losses[1:]
        assert all(weight.equal(whole.weights[key]) for key, weight in part.weights.items())


def test_a_checkpoint_loads_into_another_layout_of_another_size(tmp_path: Path) -> None:
    keep = ("--no-dropout", "--save-every", "1", "--output", "FOLDER/checkpoints")
    tensor = deep(DEEP_LLAMA, tensor_parallel_size=2)
    launch_several(tmp_path, {"two": tensor}, *keep)
    checkpoint = str(tmp_path / "two" / "checkpoints" / "step-1")
    pipeline = {"pipeline_parallel_size": 2, "data_parallel_size": 2}
    layouts = {
        "zero1": deep(DEEP_LLAMA, zero_stage=1, **pipeline),
        "zero3": deep(DEEP_LLAMA, zero_stage=3, **pipeline),
    }
    runs = launch_several(tmp_path, layouts, "--no-dropout", "--resume", checkpoint)
    reference = expected("deep-llama")
    for run in runs.values():
        assert run.losses == pytest.approx(reference.losses[1:], abs=1e-5, rel=0)
        assert distance(run.weights, reference.weights) <= 1e-5
