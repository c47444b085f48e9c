"""Runs that are told to end, or that end, leave what the next one and transformers can read."""

import argparse
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import transformers
from launched import (
    DEEP_GPT2,
    DEEP_LLAMA,
    GPT2,
    HYPERPARAMETERS,
    TINY,
    Run,
    deep,
    run,
    start,
    write,
)
from reference import (
    SEQUENCE_LENGTH,
    TOLERANCE,
    assert_parity,
    build,
    causal_sample,
    distance,
    expected,
)
from run_specs import with_layout
from safetensors.torch import load_file
from several import load
from texts import draw_texts, write_texts, write_tokenizer

from planner.generate import RunSpec

pytestmark = pytest.mark.usefixtures("preloaded")

ZERO_3 = with_layout(TINY, zero_stage=3)
STOPPED: dict[str, RunSpec] = {
    "shards": ZERO_3,
    "divided": deep(DEEP_GPT2, tensor_parallel_size=2),
}
ARCHITECTURES = {"divided": "deep-gpt2"}


def edit(folder: Path, target: str, old: str, new: str) -> None:
    """Change the emitted modules in one place."""
    (script,) = (path for path in (folder / target).glob("*.py") if old in path.read_text())
    text = script.read_text()
    assert text.count(old) == 1, old
    script.write_text(text.replace(old, new))


def told_after(folder: Path, target: str, step: int) -> None:
    """Have one process of the run told to end while it is at this step."""
    sent = f"if step == {step}:\n            os.kill(os.getpid(), signal.SIGTERM)\n        "
    imports = "import os\n        import signal\n\n        "
    edit(folder, target, "now = time.perf_counter()", f"{imports}{sent}now = time.perf_counter()")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("case", STOPPED)
def test_a_stopped_run_continues_from_the_step_that_was_running(case: str, tmp_path: Path) -> None:
    spec, checkpoint = STOPPED[case], "step-2"
    write(tmp_path, spec, "torchrun")
    command = ("bash", "torchrun/launch.sh", "--no-dropout", "--resume", "latest")
    output = tmp_path / "torchrun" / "checkpoints"
    told_after(tmp_path, "torchrun", 2)
    stopped = start(tmp_path, *command, "--save-every", "1", "--keep", "1").fail()
    assert "there is no checkpoint in checkpoints: starting anew" in stopped
    assert "SIGTERM after step 2: --resume latest --output checkpoints continues" in stopped
    assert names(output) == {checkpoint}
    assert not (tmp_path / "model").exists()
    write(tmp_path, spec, "torchrun")
    resumed = start(tmp_path, *command)
    assert f"starting from checkpoint checkpoints/{checkpoint}, on" in resumed.output()
    assert_parity(resumed, expected(ARCHITECTURES.get(case, "gpt2")))


def descendants(process: int) -> Iterator[int]:
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            yield child
            yield from descendants(child)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_launcher_lets_the_running_step_end(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster sends SIGTERM to the first process; Slurm's warning and Ctrl-C go to all."""
    monkeypatch.delenv("PRELOADED")
    write(tmp_path, TINY, "torchrun")
    command = ("bash", "torchrun/launch.sh", *HYPERPARAMETERS, "--steps", "1000000")
    launched = run(tmp_path, *command, "--log", str(tmp_path / "log.jsonl"))
    while not (tmp_path / "log.jsonl").exists():
        assert launched.process.poll() is None
        time.sleep(0.05)
    below = list(descendants(launched.process.pid))
    for process in [below[0]] if number == signal.SIGTERM else below:
        os.kill(process, number)
    output = launched.fail()
    assert f"{number.name} after step" in output
    assert "Traceback" not in output
    (last,) = names(tmp_path / "torchrun" / "checkpoints")
    assert last == f"step-{launched.log[-1]['step']}"


def first_loss(folder: Path) -> float:
    """Return the loss of the model in a folder on the first batch of a run."""
    auto: Any = transformers.AutoModelForCausalLM
    model = auto.from_pretrained(folder).eval()
    tokens = torch.stack([causal_sample(index, 96)[0] for index in range(16)])
    with torch.no_grad():
        return float(model(input_ids=tokens, labels=tokens).loss)


def test_the_model_that_a_run_leaves_is_where_the_next_one_starts(tmp_path: Path) -> None:
    data = write_texts(tmp_path / "texts.jsonl", draw_texts(count=40, longest=25))
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    write(tmp_path, TINY, "torchrun")
    command = ("bash", "torchrun/launch.sh", "--no-dropout", *HYPERPARAMETERS)
    text = ("--data", str(data), "--tokenizer", str(tokenizer))
    run(tmp_path, *command, *text, HF_HOME=str(tmp_path / "home")).finish()
    output = tmp_path / "torchrun" / "checkpoints"
    final = output / "final"
    assert names(output) == {"final"}
    assert transformers.AutoTokenizer.from_pretrained(final)("w0 w1")["input_ids"] == [3, 4]
    refused = run(tmp_path, *command).fail()
    assert "checkpoints/final is from an earlier run: --output names another folder" in refused
    log = tmp_path / "log.jsonl"
    following = ("--model", str(final), "--log", str(log), "--output", "next", "--no-save-model")
    again = Run(tmp_path, run(tmp_path, *command, *following).finish().process)
    assert again.losses[0] == pytest.approx(first_loss(final), abs=1e-5, rel=0)
    assert not (tmp_path / "torchrun" / "next").exists() or not names(
        tmp_path / "torchrun" / "next"
    )
    run(tmp_path, *command, "--overwrite").finish()
    assert "tokenizer.json" not in names(final)


SHARDED: dict[str, tuple[str, RunSpec]] = {
    "three dimensions": (
        "deep-gpt2",
        deep(DEEP_GPT2, tensor_parallel_size=2, pipeline_parallel_size=2),
    ),
    "pipeline": (
        "deep-llama",
        deep(DEEP_LLAMA, pipeline_parallel_size=2, data_parallel_size=2, zero_stage=3),
    ),
    "fsdp": ("gpt2", ZERO_3),
}


@pytest.mark.parametrize("case", SHARDED)
def test_a_divided_model_is_saved_in_files_that_transformers_loads(
    case: str, tmp_path: Path
) -> None:
    architecture, spec = SHARDED[case]
    write(tmp_path, spec, "torchrun")
    edit(tmp_path, "torchrun", '"max_shard_size": "5GB"', '"max_shard_size": "20KB"')
    done = start(tmp_path, "bash", "torchrun/launch.sh", "--no-dropout").finish()
    found = names(tmp_path / "model")
    assert {"config.json", "generation_config.json", "model.safetensors.index.json"} <= found
    assert sum(name.endswith(".safetensors") for name in found) > 2
    auto: Any = transformers.AutoModelForCausalLM
    model, report = auto.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(report.values())
    reference = expected(architecture)
    assert done.weights.keys() == reference.weights.keys()
    assert distance(dict(model.named_parameters()), reference.weights) <= TOLERANCE
    assert model.config.max_position_embeddings == SEQUENCE_LENGTH


def test_a_full_disk_is_one_line_and_leaves_no_half_checkpoint(tmp_path: Path) -> None:
    write(tmp_path, TINY, "torchrun")
    limit = "import resource\n\nresource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
    edit(tmp_path, "torchrun", "HERE = Path", f"{limit}HERE = Path")
    command = ("bash", "torchrun/launch.sh", *HYPERPARAMETERS, "--save-every", "1")
    output = run(tmp_path, *command).fail()
    (line,) = (line for line in output.splitlines() if "was not saved" in line)
    name = "step-1"
    assert f"checkpoints/{name} was not saved, with " in line
    assert "GB free on its disk: " in line
    assert "Traceback" not in output
    again = run(tmp_path, *command, "--resume", f"checkpoints/{name}9").fail()
    assert f"there is no checkpoint checkpoints/{name}9" in again
    assert not names(tmp_path / "torchrun" / "checkpoints")


@pytest.mark.parametrize("stage", [0, 3])
def test_a_checkpoint_that_cannot_be_read_is_passed_over(stage: int, tmp_path: Path) -> None:
    """The newest is an empty folder, the next one lost a part of a file."""
    write(tmp_path, with_layout(TINY, zero_stage=stage), "torchrun")
    command = ("bash", "torchrun/launch.sh", "--no-dropout")
    whole = start(tmp_path, *command, "--save-every", "1").finish()
    output = tmp_path / "torchrun" / "checkpoints"
    (output / "step-9").mkdir()
    for part in (output / "step-3").glob("*.distcp"):
        os.truncate(part, part.stat().st_size // 2)
    losses = whole.losses
    resumed = start(tmp_path, *command, "--resume", "latest")
    said = resumed.output()
    passed = [line for line in said.splitlines() if "cannot be read" in line]
    assert [line.rpartition("; ")[2] for line in passed] == [
        "continuing from checkpoints/step-3",
        "continuing from checkpoints/step-2",
    ]
    assert "step-9 cannot be read: it is none of this script, or not whole;" in passed[0]
    assert "Traceback" not in said
    assert resumed.losses == [*losses, losses[-1]]
    for path in (output / "step-2").glob("*.distcp"):
        path.unlink()
    refused = run(tmp_path, *command, "--cpu", "--resume", "checkpoints/step-2").fail()
    assert refused.count("checkpoint checkpoints/step-2 cannot be read: ") == 1
    assert "Traceback" not in refused


def test_a_checkpoint_of_another_layout_is_refused_in_a_line(tmp_path: Path) -> None:
    """GPT-2's fused matrices are divided one by one, under names of their own."""
    divided = deep(GPT2, tensor_parallel_size=2)
    keep = ("--save-every", "3", "--output", str(tmp_path / "kept"))
    write(tmp_path / "divided", divided, "torchrun")
    start(tmp_path / "divided", "bash", "torchrun/launch.sh", *keep).finish()
    write(tmp_path, TINY, "torchrun")
    resume = ("--cpu", "--resume", str(tmp_path / "kept" / "step-3"))
    refused = run(tmp_path, "bash", "torchrun/launch.sh", *resume).fail()
    assert refused.count("step-3 cannot be read: Missing key in checkpoint state_dict") == 1
    assert "Traceback" not in refused


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("--output", "a file/in it"),
            "a file/in it cannot be written: [Errno 20] Not a directory",
        ),
        (("--save-every", "1"), "checkpoints cannot be written: 1000000000.0 GB go there, "),
    ],
)
def test_an_output_that_cannot_be_written_is_found_before_the_first_step(
    arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    write(tmp_path, replace(TINY, checkpoint_bytes=10**18), "torchrun")
    (tmp_path / "torchrun" / "a file").touch()
    refused = run(tmp_path, "bash", "torchrun/launch.sh", *HYPERPARAMETERS, *arguments).fail()
    assert refused.count(says) == 1
    assert "step 1/" not in refused
    assert "Traceback" not in refused


@pytest.mark.parametrize("stage", [0, 3])
def test_weights_that_cannot_be_saved_at_last_are_saved_elsewhere(
    stage: int, tmp_path: Path
) -> None:
    """A file takes the place of their folder while the last step runs."""
    write(tmp_path, with_layout(TINY, zero_stage=stage), "torchrun")
    taken = tmp_path / "model"
    touch = f"if step == 3:\n            open({str(taken)!r}, 'w').close()\n        "
    clock = "now = time.perf_counter()"
    edit(tmp_path, "torchrun", clock, touch + clock)
    command = ("bash", "torchrun/launch.sh", "--no-dropout")
    output = start(tmp_path, *command).fail()
    assert output.count(f"{taken} was not saved, with ") == 1
    assert "Traceback" not in output
    (saved,) = re.findall(r"^saved (\S+)$", output, re.MULTILINE)
    weights = load_file(Path(saved) / "model.safetensors")
    shutil.rmtree(saved)
    assert distance(weights, expected("gpt2").weights) <= TOLERANCE


def test_weights_are_saved_in_16_bit_where_that_is_asked_for(tmp_path: Path) -> None:
    for stage in (0, 3):
        folder = tmp_path / str(stage)
        write(folder, with_layout(TINY, zero_stage=stage), "torchrun")
        command = ("bash", "torchrun/launch.sh", "--save-dtype", "bfloat16")
        done = start(folder, *command).finish()
        assert {weight.dtype for weight in done.weights.values()} == {torch.bfloat16}
        assert json.loads((folder / "model" / "config.json").read_text())["dtype"] == "bfloat16"


@pytest.mark.parametrize("stage", [0, 3])
def test_settings_of_generation_that_fail_their_check_cost_no_weights(
    stage: int, tmp_path: Path
) -> None:
    write(tmp_path, with_layout(TINY, zero_stage=stage), "torchrun")
    script = load(tmp_path / "torchrun" / "train.py")
    model, folder = build(GPT2), tmp_path / "model"
    model.generation_config.temperature = 0.5  # without do_sample
    folder.mkdir()
    script.join(argparse.Namespace(cpu=True))
    weights = script.whole_weights(model, torch.float32, keeps=True)
    script.save_weights(model, weights, folder, torch.float32)
    dist.destroy_process_group()
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert distance(dict(model.named_parameters()), dict(loaded.named_parameters())) == 0
