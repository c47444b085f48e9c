"""Files that the files of a run name are read too, where they lie beside them and nowhere else."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from planner.cli import cli

STAGE_3 = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}'
FLAGS = ["--model", "gpt2", "--gpus", "4", "--gpu", "a100"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    return tmp_path / "run"


def check(*words: str) -> Result:
    return CliRunner().invoke(cli, ["check", *words, *FLAGS])


def test_a_deepspeed_file_that_a_command_names_is_read(folder: Path) -> None:
    (folder / "ds.json").write_text(STAGE_3.replace("4", "8"))
    (folder / "train.sh").write_text(
        "deepspeed --num_gpus 4 t.py --deepspeed ds.json --output_dir o --per_device_train_batch_size 4\n"
    )
    found = check("train.sh")
    assert found.exit_code == 4, found.output
    assert found.output.startswith("train.sh, ds.json: openai-community/gpt2 on 4 x")
    assert "CFG002  ds.json:1" in found.output
    assert check("train.sh", "ds.json").output == found.output


def test_an_accelerate_file_is_read_from_another_folder(folder: Path) -> None:
    (folder / "conf").mkdir()
    (folder / "conf" / "acc.yaml").write_text(
        "distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {}\n"
    )
    (folder / "conf" / "go.sh").write_text("accelerate launch --config_file acc.yaml train.py\n")
    assert "CFG041  conf/acc.yaml:2" in check("conf/go.sh").output


@pytest.mark.parametrize("name", ["../ds.json", "{outside}/ds.json", "ds.txt", "no.json"])
def test_nothing_else_is_opened(folder: Path, name: str) -> None:
    for place in (folder.parent / "ds.json", folder / "ds.txt"):
        place.write_text(STAGE_3)
    named = name.format(outside=folder.parent)
    (folder / "train.py").write_text(f"TrainingArguments(output_dir='o', deepspeed={named!r})\n")
    found = check("train.py")
    assert found.exit_code == 0
    assert found.output.startswith("train.py: ")
    assert "not estimated: the DeepSpeed configuration" in found.output


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("go.sh", "accelerate launch --num_processes 4 --config_file no.yaml t.py --output_dir o"),
        ("go.sh", "axolotl train no.yaml"),
        ("a.yaml", "base_model: gpt2\nmicro_batch_size: 1\ndeepspeed: configs/no.json"),
        (
            "acc.yaml",
            "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: no.json}",
        ),
    ],
)
def test_a_file_that_is_not_there_is_said_and_not_guessed(
    folder: Path, file: str, text: str
) -> None:
    (folder / file).write_text(text)
    found = check(file)
    assert found.exit_code == 0, found.output
    words = " ".join(found.output.split())
    assert "not estimated" in words
    assert "is not there" in words


def test_a_model_is_known_by_another_name_and_a_file_by_its_tool(folder: Path) -> None:
    text = "base_model: Qwen/Qwen2.5-7B-Instruct\nmicro_batch_size: 1\noutput_dir: o\n"
    (folder / "a.yaml").write_text(text)
    run = CliRunner().invoke(cli, ["check", "a.yaml", "--gpus", "8", "--gpu", "h100"])
    assert run.output.startswith("a.yaml: Qwen/Qwen2.5-7B on 8 x")
    run = CliRunner().invoke(cli, ["check", "a.yaml"])
    assert run.output.startswith("a.yaml: axolotl\n")


def test_the_doctor_looks_at_a_script_too(folder: Path) -> None:
    (folder / "zero3.json").write_text(STAGE_3.replace("4", '"auto"'))
    (folder / "train.py").write_text(
        "from transformers import AutoModelForCausalLM, TrainingArguments, Trainer\n"
        "model = AutoModelForCausalLM.from_pretrained('gpt2')\n"
        "args = TrainingArguments('o', deepspeed='zero3.json')\n"
        "Trainer(model=model, args=args).train()\n"
    )
    assert "DOC026  train.py:2" in check("train.py").output
