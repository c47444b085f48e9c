"""What a target's launch.sh starts: this project's train.py, or a program that has words of its own."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from planner.core.frozen import frozen
from planner.generate.target import Target


@frozen
class Program:
    """A training program, and what its users type."""

    name: str
    data: str
    """Arguments that name the user's data: `{corpus}` is the file, `{folder}` where it lies, with a slash."""
    steps: tuple[str, ...]
    """Arguments for `STEPS` optimizer steps."""
    saves: tuple[str, ...]
    """Arguments that save every `{every}` steps to `{folder}`, and go on from what is there."""
    goes_on: str
    """Those of `saves` by which a launcher knows that the same command goes on."""
    save_signal: str = ""
    """By which it saves and ends; empty where none makes it."""
    corpus: str = ""
    """What its data is called, where it is not the file of the task."""
    environment: str = ""
    """Variables that stand before a command that starts it, with a space after them."""
    readme: str = "README.md"
    """The template of a bundle's README where this is what the bundle starts."""


STEPS = 1000
"""Of the commands that READMEs show."""

_HOUR_SECONDS = 3600

KEPT = 3
"""Checkpoints that those commands keep."""

TRAIN_PY = Program(
    name="train.py",
    data="--data {folder}{corpus}",
    steps=("--steps", f"{STEPS}"),
    saves=(
        *("--output", "{folder}"),
        *("--save-every", "{every}", "--keep", f"{KEPT}"),
        *("--resume", "latest"),
    ),
    goes_on="--resume latest",
    save_signal="USR1",
)

_OTHERS: Mapping[str, Program] = MappingProxyType(
    {
        "megatron": Program(
            name="pretrain_gpt.py",
            save_signal="TERM",
            data="--data-path {folder}{corpus}",
            steps=("--train-iters", f"{STEPS}"),
            saves=("--save", "{folder}", "--load", "{folder}", "--save-interval", "{every}"),
            goes_on="--load",
            corpus="corpus_text_document",
            environment="MEGATRON_PATH=~/Megatron-LM ",
            readme="megatron/README.md",
        ),
        "megatron-bridge": Program(
            name="finetune.py",
            save_signal="TERM",
            data="--data-path {folder}{corpus}",
            steps=("--train-iters", f"{STEPS}"),
            saves=("--save", "{folder}", "--load", "{folder}", "--save-interval", "{every}"),
            goes_on="--load",
            corpus="corpus_text_document",
            readme="megatron-bridge/README.md",
        ),
        "torchtitan": Program(
            name="torchtitan.train",
            data="--dataloader.dataset c4_test --dataloader.dataset_path {folder}{corpus}",
            steps=("--training.steps", f"{STEPS}"),
            saves=(
                "--checkpoint.enable",
                *("--checkpoint.interval", "{every}"),
                *("--dump_folder", "{folder}"),
            ),
            goes_on="--checkpoint.enable",
            corpus="corpus",
            readme="torchtitan/README.md",
        ),
    }
)
"""By target; all others have a train.py."""


def save_every(step_seconds: float) -> int:
    """Return the steps between checkpoints of those commands: a hundred, or an hour's where that is fewer.

    A run that ends loses what it did since the last one.
    """
    within = (steps for steps in (100, 50, 20, 10, 5, 2) if steps * step_seconds <= _HOUR_SECONDS)
    return next(within, 1)


def program_of(target: Target) -> Program:
    """Return what a target's launch.sh starts."""
    return _OTHERS.get(target.name, TRAIN_PY)


def main_program(targets: Sequence[Target]) -> Program:
    """Return what the README of a bundle is about: train.py wherever there is one."""
    programs = [program_of(target) for target in targets]
    return programs[0] if programs and TRAIN_PY not in programs else TRAIN_PY
