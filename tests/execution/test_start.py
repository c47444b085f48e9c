"""What a run starts from and on which devices: said in its first line, or the run ends with one."""

from dataclasses import replace
from pathlib import Path

import pytest
from launched import GPT2, TINY, launch, run, write
from reference import assert_parity, expected
from test_deepspeed import weights_of

pytestmark = pytest.mark.usefixtures("preloaded")


def test_a_folder_with_weights_is_trained_from_them(tmp_path: Path) -> None:
    weights_of(GPT2, tmp_path / "mine")
    plan = replace(TINY, model=str(tmp_path / "mine"), is_pretrained=True)
    trained = launch(tmp_path, plan, "--no-dropout", "--seed", "0")
    output = trained.output()
    assert f"starting from pretrained weights of {tmp_path}/mine, on 2 x CPU\n" in output
    assert_parity(trained, expected("gpt2"))


@pytest.mark.parametrize("target", ["torchrun", "accelerate", "trainer"])
def test_missing_gpus_end_the_run_with_one_line(target: str, tmp_path: Path) -> None:
    folder = write(tmp_path, TINY, target)
    output = run(folder, "bash", f"{target}/launch.sh", "--log", str(tmp_path / "log")).fail()
    assert output.count("PyTorch finds 0 GPUs here for 2 processes; --cpu trains without\n") == 1
    assert not (tmp_path / "log").exists()


def test_a_script_by_itself_says_what_the_plan_is_for(tmp_path: Path) -> None:
    folder = write(tmp_path, TINY, "torchrun")
    output = run(folder, "python", "torchrun/train.py", "--cpu", "--steps", "1").output()
    first, *_ = [line for line in output.splitlines() if line.startswith("starting")]
    assert first == "starting from random weights, on 1 x CPU (the plan is for 2)"
