"""Runs of Trainer that are told to end, cannot save, or find a damaged checkpoint: a line each, nothing lost."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from launched import LLAMA, TINY, write
from reference import distance
from safetensors.torch import save_file
from texts import write_tokenizer
from trainer_runs import (
    HYPERPARAMETERS,
    ON_CPUS,
    assert_parity,
    expected,
    named,
    start,
    tokens,
    train,
    without_dropout,
)

pytestmark = pytest.mark.usefixtures("preloaded")

SPEC = replace(TINY, model_config=LLAMA)
LATEST = ("--resume_from_checkpoint", "latest")


def at_step(folder: Path, step: int, statement: str, process: int = 1) -> None:
    """Have one process of the run do something while it is at this step."""
    script = folder / "trainer" / "train.py"
    text, line = script.read_text(), "        told = torch.tensor("
    assert text.count(line) == 1
    meets = f"        if state.global_step == {step} and args.process_index == {process}:\n"
    script.write_text(text.replace(line, f"{meets}            {statement}\n{line}"))


def said_by(printed: str, *parts: str) -> bool:
    """Return whether each part was said once, and nothing else of an error."""
    return "Traceback" not in printed and all(printed.count(part) == 1 for part in parts)


def test_a_run_told_to_end_goes_on_and_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    data = tokens(tmp_path)
    write(tmp_path, without_dropout(SPEC), "trainer")
    at_step(tmp_path, 2, "signal.raise_signal(signal.SIGTERM)")
    stopped = start(tmp_path, *HYPERPARAMETERS, *data, *LATEST, "--save_steps", "1").fail()
    assert "told to end: --resume_from_checkpoint latest goes on from here" in stopped
    assert "Traceback" not in stopped
    newest = tmp_path / "model" / "checkpoint-2" / "model.safetensors"
    os.truncate(newest, newest.stat().st_size // 2)
    resumed = train(tmp_path, SPEC, *data, *LATEST).finish()
    assert "checkpoint-2 is damaged: taking the one before" in resumed.printed
    assert [record["step"] for record in resumed.log if "loss" in record] == [2, 3]
    whole = expected(LLAMA)
    assert distance(whole.weights, resumed.weights) <= 1e-5


def test_latest_starts_anew_where_there_is_none(tmp_path: Path) -> None:
    assert_parity(train(tmp_path, SPEC, *tokens(tmp_path), *LATEST), expected(LLAMA))


@pytest.mark.parametrize(
    ("spec", "arguments", "says"),
    [
        (SPEC, ("--use_cpu", "false"), "found no GPU here: --use_cpu true trains without"),
        (SPEC, ("--output_dir", "/proc/no/such"), r"--output_dir /proc/no/such cannot be written"),
        (
            replace(SPEC, checkpoint_bytes=10**17),
            (*ON_CPUS, "--save_steps", "1", "--save_total_limit", "2"),
            r"--output_dir \S+ lacks the 300000000\.0 GB of checkpoints",
        ),
    ],
    ids=["no GPU", "read-only", "too little space"],
)
def test_what_would_end_a_run_later_is_one_line_before_it_starts(
    spec: object, arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    printed = train(tmp_path, spec, *arguments).fail()  # type: ignore[arg-type]
    assert len(re.findall(says, printed)) == 1
    assert "Traceback" not in printed
    assert "failed (exitcode" not in printed


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("", "--chat_template_path FILE"),
        (
            "{% for message in messages %}{{ message.content }} <end> {% endfor %}",
            "{% generation %}",
        ),
    ],
    ids=["none", "unmarked"],
)
def test_conversations_without_a_fit_template_are_one_line(
    template: str, says: str, tmp_path: Path
) -> None:
    folder = write_tokenizer(tmp_path / "tokenizer")
    if template:
        (folder / "chat_template.jinja").write_text(template)
    roles = [{"role": "user", "content": "w1 w2"}, {"role": "assistant", "content": "w3 w4"}]
    data = tmp_path / "chat.jsonl"
    data.write_text((json.dumps({"messages": roles}) + "\n") * 16)
    printed = train(tmp_path, SPEC, *named(data, folder)).fail()
    assert printed.count(says) == 1
    assert "Traceback" not in printed


def test_a_file_that_is_not_there_and_a_model_without_a_tokenizer_are_one_line(
    tmp_path: Path,
) -> None:
    folder = write_tokenizer(tmp_path / "tokenizer")
    for arguments, says in (
        (named(tmp_path / "nope.jsonl", folder), "nope.jsonl: Unable to find"),
        (("--dataset_name", "texts.jsonl"), "cannot train on texts.jsonl: "),
    ):
        printed = train(tmp_path, SPEC, *arguments).fail()
        assert printed.count(says) == 1
        assert "Traceback" not in printed


def test_a_disk_that_is_full_at_the_end_is_one_line_and_keeps_the_checkpoint(
    tmp_path: Path,
) -> None:
    write(tmp_path, without_dropout(SPEC), "trainer")
    script = tmp_path / "trainer" / "train.py"
    limit = (
        "        import resource\n        resource.setrlimit(resource.RLIMIT_FSIZE, (9_000,) * 2)\n"
    )
    text, line = script.read_text(), "        trainer.save_model()\n"
    assert text.count(line) == 1
    script.write_text(text.replace(line, limit + line))
    printed = start(tmp_path, *HYPERPARAMETERS, *tokens(tmp_path)).fail()
    assert said_by(
        printed, f"{tmp_path}/model cannot take the model, as its last checkpoint has it: "
    )
    assert (tmp_path / "model" / "checkpoint-3" / "model.safetensors").stat().st_size > 9_000


def test_a_checkpoint_that_cannot_be_written_is_one_line_and_the_one_before_stays(
    tmp_path: Path,
) -> None:
    write(tmp_path, without_dropout(SPEC), "trainer")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (9_000,) * 2)"
    at_step(tmp_path, 2, limit, process=0)
    data = tokens(tmp_path)
    printed = start(tmp_path, *HYPERPARAMETERS, *data, "--save_steps", "1").fail()
    model = tmp_path / "model"
    assert said_by(printed, f"{model} has nothing of step 2: ")
    resumed = train(tmp_path, SPEC, *data, *LATEST).finish()
    assert [record["step"] for record in resumed.log if "loss" in record] == [2, 3]
    assert distance(expected(LLAMA).weights, resumed.weights) <= 1e-5


def test_what_is_no_checkpoint_is_one_line(tmp_path: Path) -> None:
    data = tokens(tmp_path)
    train(tmp_path, SPEC, *data, "--save_steps", "1", "--max_steps", "2").finish()
    damaged, other = (tmp_path / "model" / f"checkpoint-{number}" for number in (1, 2))
    os.truncate(damaged / "optimizer.pt", 1_000)
    weights = other / "model.safetensors"
    save_file({"model.norm.weight": torch.zeros(1)}, weights)
    for folder in (
        tmp_path / "tokenizer",
        tmp_path / "nowhere",
        damaged,
        other,
    ):
        printed = train(tmp_path, SPEC, *data, "--resume_from_checkpoint", str(folder)).fail()
        assert said_by(printed, f"cannot go on from {folder}: ")
