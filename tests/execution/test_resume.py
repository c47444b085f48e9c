"""A run that stops and resumes has the losses of one that never stopped, dropout included."""

from pathlib import Path

import pytest
from bundles import with_layout
from launched import TINY, launch

from planner.generate import Bundle

SAVE = ("--save-every", "1", "--output", "checkpoints")
FP16 = with_layout(TINY, precision="fp16-mixed")


@pytest.mark.parametrize(
    "cases",
    [
        {"torchrun": with_layout(TINY, zero_stage=3), "accelerate": TINY},
        {"torchrun": FP16, "accelerate": with_layout(TINY, zero_stage=1)},
        {"torchrun": with_layout(FP16, zero_stage=1)},
    ],
    ids=["sharded", "replicated", "scaled"],
)
def test_resuming_repeats_the_uninterrupted_run(cases: dict[str, Bundle], tmp_path: Path) -> None:
    wholes = {
        target: launch(tmp_path / target, bundle, *SAVE, target=target)
        for target, bundle in cases.items()
    }
    parts = {}
    for target, whole in wholes.items():
        checkpoints = whole.finish().folder / target / "checkpoints"
        assert {path.name for path in checkpoints.iterdir()} == {"step-1", "step-2", "step-3"}
        resume = ("--resume", str(checkpoints / "step-1"))
        folder = tmp_path / f"{target}-resumed"
        parts[target] = launch(folder, cases[target], *resume, target=target)
    for target, part in parts.items():
        whole = wholes[target]
        assert [record["step"] for record in part.finish().log] == [2, 3]
        assert part.losses == whole.losses[1:]
        assert part.weights.keys() == whole.weights.keys()
        assert all(weight.equal(whole.weights[name]) for name, weight in part.weights.items())
