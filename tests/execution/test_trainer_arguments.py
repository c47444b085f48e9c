"""What stands in the YAML and on the command line: epochs count before steps, an unknown word is a line."""

import re
import runpy
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trl
import yaml
from launched import ACCUMULATED, LLAMA, write
from run_specs import with_layout

SPEC = with_layout(ACCUMULATED, model_config=LLAMA, run_steps=3)
GB = 10**9
Read = Callable[..., trl.SFTConfig]


@pytest.fixture
def progress(tmp_path: Path) -> dict[str, Any]:
    """Return what stands beside a plan's train.py."""
    spec = replace(SPEC, parameters=5 * GB, checkpoint_bytes=60 * GB)
    return runpy.run_path(str(write(tmp_path, spec, "trainer") / "trainer" / "train.py"))


@pytest.fixture
def read(tmp_path: Path, progress: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Read:
    """Return what a plan's files make of arguments, and of what is added to its YAML."""
    settings = Path(progress["SETTINGS"])
    written = settings.read_text()

    def take(*arguments: str, added: str = "") -> trl.SFTConfig:
        own = ["--use_cpu", "true", "--output_dir", str(tmp_path / "max_steps")]
        monkeypatch.setattr(sys, "argv", ["train.py", *own, *arguments])
        settings.write_text(written + added)
        *_, training = progress["read_arguments"]()
        assert isinstance(training, trl.SFTConfig)
        return training

    return take


@pytest.fixture
def lacking(
    read: Read, progress: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., float]:
    """Return how many GB a run says that it lacks on a disk that is full."""
    usage = shutil.disk_usage(tmp_path)._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)

    def take(*arguments: str, there: int) -> float:
        for number in range(there):
            (tmp_path / "max_steps" / f"checkpoint-{number}").mkdir(parents=True)
        with pytest.raises(SystemExit) as ended:
            progress["check"](read(*arguments))
        said = re.search(r"lacks the ([\d.]+) GB", str(ended.value))
        assert said is not None
        return float(said[1])

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
        (("--num_train_epochs", "2", "--max_steps", "7"), "", -1),
    ],
)
def test_epochs_that_are_named_count_and_steps_else(
    arguments: tuple[str, ...], added: str, steps: int, read: Read
) -> None:
    training = read(*arguments, added=added)
    assert training.max_steps == steps
    assert training.num_train_epochs == (2 if steps < 0 else 3)


@pytest.mark.parametrize(
    ("arguments", "added", "parts"),
    [
        (("--learing_rate", "1e-4"), "", ("--learing_rate",)),
        (("--max_step", "7"), "", ("--max_step",)),
        (("--learning_rate", "fast"), "", ("learning_rate", "fast")),
        (("chat.jsonl",), "", ("chat.jsonl",)),
        (("--eval_strategy", "sometimes"), "", ("eval_strategy", "sometimes")),
        (("--lr_scheduler_type", "--seed", "1"), "", ("lr_scheduler_type",)),
        ((), "gradient_accumulation: 2", ("gradient_accumulation",)),
        ((), "save_strategy: sometimes", ("sometimes",)),
        ((), "max_steps: [1", ("sft.yaml",)),
        (("--load_best_model_at_end", "true"), "", ("load_best_model_at_end",)),
    ],
)
def test_what_is_no_argument_is_one_line(
    arguments: tuple[str, ...], added: str, parts: tuple[str, ...], read: Read
) -> None:
    with pytest.raises(SystemExit) as ended:
        read(*arguments, added=added)
    said = str(ended.value)
    assert all(part in said for part in parts)
    assert "\n" not in said


@pytest.mark.parametrize(
    ("arguments", "there", "gigabytes"),
    [
        # Weights of 20 GB; a checkpoint of 60, of which three are kept, and a fourth until the oldest is gone.
        (("--save_strategy", "no"), 0, 20),
        ((), 0, 260),
        ((), 1, 200),
        ((), 3, 80),
        ((), 5, 20),
        (("--save_total_limit", "1"), 0, 140),
    ],
)
def test_a_run_asks_for_the_room_of_what_it_will_keep(
    arguments: tuple[str, ...], there: int, gigabytes: int, lacking: Callable[..., float]
) -> None:
    assert lacking(*arguments, there=there) == gigabytes


def test_the_yaml_has_the_plans_steps(tmp_path: Path) -> None:
    folder = write(tmp_path, SPEC, "trainer") / "trainer"
    assert yaml.safe_load((folder / "sft.yaml").read_text())["max_steps"] == 3
