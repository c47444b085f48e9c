"""What stands in the YAML and on the command line: the last word counts, an unknown one is a line."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trl
import yaml
from launched import ACCUMULATED, LLAMA, write
from run_specs import with_layout

SPEC = with_layout(ACCUMULATED, model_config=LLAMA, run_steps=3)
Read = Callable[..., trl.SFTConfig]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Return what a plan's files make of arguments, and of what is added to its YAML."""
    folder = write(tmp_path, SPEC, "trainer") / "trainer"
    progress = runpy.run_path(str(folder / "progress.py"))

    def take(*arguments: str, added: str = "") -> trl.SFTConfig:
        own = ["--use_cpu", "true", "--output_dir", str(tmp_path / "max_steps")]
        monkeypatch.setattr(sys, "argv", ["train.py", *own, *arguments])
        settings = tmp_path / "sft.yaml"
        settings.write_text((folder / "sft.yaml").read_text() + added)
        kinds = (trl.ScriptArguments, trl.ModelConfig, trl.SFTConfig)
        *_, training = progress["read_arguments"](kinds, settings)
        assert isinstance(training, trl.SFTConfig)
        return training

    return take


@pytest.mark.parametrize(
    ("arguments", "added", "steps"),
    [
        ((), "", 3),
        (("--max_steps", "7"), "", 7),
        (("--max-steps=7",), "", 7),
        (("--num_train_epochs", "2"), "", -1),
        (("--num-train-epochs=2",), "", -1),
        (("--max_steps", "7", "--num_train_epochs", "2"), "", -1),
        (("--num_train_epochs", "2", "--max_steps", "7"), "", 7),
        ((), "num_train_epochs: 2", -1),
        (("--max_steps", "7"), "num_train_epochs: 2", 7),
    ],
)
def test_of_steps_and_epochs_the_last_word_counts(
    arguments: tuple[str, ...], added: str, steps: int, read: Read
) -> None:
    training = read(*arguments, added=added)
    assert training.max_steps == steps
    assert training.num_train_epochs == (2 if steps < 0 or added or len(arguments) > 3 else 3)


@pytest.mark.parametrize(
    ("arguments", "added", "parts"),
    [
        (("--learing_rate", "1e-4"), "", ("--learing_rate", "learning_rate")),
        (("--max_step", "7"), "", ("--max_step", "max_steps")),
        (("--learning_rate", "fast"), "", ("learning_rate", "fast")),
        (("chat.jsonl",), "", ("chat.jsonl",)),
        (("--eval_strategy", "sometimes"), "", ("eval_strategy", "sometimes")),
        (("--lr_scheduler_type", "--seed", "1"), "", ("lr_scheduler_type",)),
        ((), "gradient_accumulation: 2", ("gradient_accumulation", "gradient_accumulation_steps")),
        ((), "save_strategy: sometimes", ("sometimes",)),
        ((), "max_steps: [1", ("sft.yaml",)),
        (("--load_best_model_at_end", "true"), "", ("load_best_model_at_end",)),
    ],
)
def test_what_is_no_argument_is_one_line_that_names_the_nearest(
    arguments: tuple[str, ...], added: str, parts: tuple[str, ...], read: Read
) -> None:
    with pytest.raises(SystemExit) as ended:
        read(*arguments, added=added)
    said = str(ended.value)
    assert all(part in said for part in parts)
    assert "\n" not in said


def test_the_yaml_has_the_plans_steps(tmp_path: Path) -> None:
    folder = write(tmp_path, SPEC, "trainer") / "trainer"
    assert yaml.safe_load((folder / "sft.yaml").read_text())["max_steps"] == 3
