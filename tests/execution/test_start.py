"""What a run starts from and on which devices: said in its first line, or the run ends with one."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from launched import GPT2, STEPS, TINY, launch, run, write
from reference import assert_parity, build, causal_sample, expected, learning_rate, weights_of
from run_specs import with_layout

pytestmark = pytest.mark.usefixtures("preloaded")


def test_a_folder_with_weights_is_trained_from_them(tmp_path: Path) -> None:
    weights_of(GPT2, tmp_path / "mine")
    plan = replace(TINY, model=str(tmp_path / "mine"), is_pretrained=True)
    trained = launch(tmp_path, plan, "--no-dropout", "--seed", "0")
    output = trained.output()
    assert f"starting from pretrained weights of {tmp_path}/mine, on 2 x CPU\n" in output
    assert_parity(trained, expected("gpt2"))


def test_missing_gpus_end_the_run_with_one_line(tmp_path: Path) -> None:
    folder = write(tmp_path, TINY, "torchrun")
    output = run(folder, "bash", "torchrun/launch.sh", "--log", str(tmp_path / "log")).fail()
    assert output.count("found 0 of the 2 GPUs that this needs here; --cpu trains without\n") == 1
    assert "failed (exitcode" not in output
    assert "Traceback" not in output
    assert not (tmp_path / "log").exists()


def test_a_missing_file_or_package_ends_the_run_with_one_line(tmp_path: Path) -> None:
    folder = write(tmp_path, TINY, "torchrun")
    wrong = {
        ("--data", "nowhere.txt"): "there is no nowhere.txt: paths are relative",
        ("--wandb", "project"): "--wandb needs its package: pip install wandb",
        ("--model", "no/model"): "no/model cannot be read: We couldn't connect",
        ("--stepps", "2"): "unrecognized arguments: --stepps 2: --help lists the arguments\n",
    }
    for arguments, message in wrong.items():
        output = run(folder, "bash", "torchrun/launch.sh", "--cpu", *arguments).fail()
        assert output.count(message) == 1
        assert "Traceback" not in output


def test_help_is_printed_once(tmp_path: Path) -> None:
    folder = write(tmp_path, TINY, "torchrun")
    assert run(folder, "bash", "torchrun/launch.sh", "--help").output().count("--save-every") == 2


def test_every_step_is_logged_with_rate_and_norm(tmp_path: Path) -> None:
    """At a norm of 1.0 the reference clips; what it clipped from is what is logged."""
    board = str(tmp_path / "board")
    options = ("--no-dropout", "--clip", "1e9", "--tensorboard", board)
    trained = launch(tmp_path, TINY, *options).finish()
    assert len(list(Path(board).glob("events.out.tfevents.*"))) == 1
    assert [record["learning_rate"] for record in trained.log] == pytest.approx(
        [learning_rate(step) for step in range(STEPS)]
    )
    model = build(GPT2)
    (inputs, labels), *_ = [
        [torch.stack(each) for each in zip(*[causal_sample(i, 96) for i in range(16)], strict=True)]
    ]
    model(input_ids=inputs, labels=labels).loss.backward()
    norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters()]))
    first = trained.log[0]
    assert first["gradient_norm"] == pytest.approx(norm.item(), rel=1e-4)
    assert first["mfu"] == pytest.approx(first["tokens_per_second"] * 1e5 / 1e12 / 2)


@pytest.mark.parametrize("zero_stage", [0, 3])
def test_a_compiled_model_trains_like_one_process(zero_stage: int, tmp_path: Path) -> None:
    """As one graph where every process holds all of it, else block by block."""
    compiled = replace(TINY, compile=True, compiles_whole=zero_stage == 0)
    plan = with_layout(compiled, zero_stage=zero_stage)
    assert_parity(launch(tmp_path, plan, "--no-dropout").finish(), expected("gpt2"))


def test_a_script_by_itself_says_what_the_plan_is_for(tmp_path: Path) -> None:
    folder = write(tmp_path, TINY, "torchrun")
    output = run(folder, "python", "torchrun/train.py", "--cpu", "--steps", "1").output()
    first, *_ = [line for line in output.splitlines() if line.startswith("starting")]
    assert first == "starting from random weights, on 1 x CPU (the plan is for 2)"
