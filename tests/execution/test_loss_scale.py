"""In fp16 the processes of a divided model share one loss scale: what overflows on one is stepped by none."""

import math
from pathlib import Path

import pytest
from launched import DEEP_LLAMA, Run, deep, start, write
from reference import expected, mean_distance

pytestmark = pytest.mark.usefixtures("preloaded")

SUMMED = "    dist.all_reduce(total)\n    norm = "


def trained(folder: Path, edits: dict[str, str], **layout: int) -> Run:
    """Train with edited modules, in one of which each text is there once."""
    write(folder, deep(DEEP_LLAMA, precision="fp16-mixed", **layout), "torchrun")
    for old, new in edits.items():
        (module,) = (path for path in folder.glob("torchrun/*.py") if old in path.read_text())
        text = module.read_text()
        assert text.count(old) == 1
        module.write_text(text.replace(old, new))
    return start(folder, "bash", "torchrun/launch.sh", "--no-dropout").finish()


@pytest.mark.parametrize("axis", ["tensor_parallel_size", "pipeline_parallel_size"])
def test_what_overflows_on_one_process_is_stepped_by_none(axis: str, tmp_path: Path) -> None:
    overflow = "    total += math.inf if dist.get_rank() else 0.0\n"
    done = trained(tmp_path, {SUMMED: f"{overflow}{SUMMED}"}, **{axis: 2})
    reference = expected("deep-llama")
    assert done.losses[0] == pytest.approx(reference.losses[0], abs=0.02)
    assert {record["gradient_norm"] for record in done.log} == {math.inf}
    assert all(weight.equal(reference.initial[name]) for name, weight in done.weights.items())


def test_endless_skipping_ends_in_one_line(tmp_path: Path) -> None:
    edits = {SUMMED: f"    total += math.inf\n{SUMMED}", "most_skipped = 20": "most_skipped = 2"}
    with pytest.raises(AssertionError) as failed:
        trained(tmp_path, edits, tensor_parallel_size=2)
    text = str(failed.value)
    assert "step 1 skipped, its gradients overflow: the loss scale is now 32768" in text
    assert "gradients were not finite in 2 steps in a row, down to a loss scale of 32768" in text


def test_a_scale_comes_down_until_gradients_are_finite(tmp_path: Path) -> None:
    """From one that no fp16 number holds, in one step to the one that scripts start with."""
    edits = {"2.0**16": "2.0**40", "else 0.5\n": "else 0.5**24\n"}
    done = trained(tmp_path, edits, tensor_parallel_size=2)
    norms = [record["gradient_norm"] for record in done.log]
    assert [math.isfinite(norm) for norm in norms] == [False, True, True]
    reference = expected("deep-llama")
    moved = mean_distance(reference.initial, reference.weights)
    assert 0.2 * moved < mean_distance(reference.initial, done.weights) < moved
