"""What a target's launch.sh starts: this project's train.py, or a program that has words of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from planner.generate.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A training program, and what its users type."""

    name: str
    data: str
    """Arguments that name the user's data; `{corpus}` stands for the file."""
    steps: tuple[str, ...]
    """Arguments for `STEPS` optimizer steps."""
    saves: tuple[str, ...]
    """Arguments that save every hundred steps to `{folder}`, and go on from what is there."""
    goes_on: str
    """Those of `saves` by which a launcher knows that the same command goes on."""
    environment: str = ""
    """Variables that stand before a command that starts it, with a space after them."""
    readme: str = "README.md"
    """The template of a bundle's README where this is what the bundle starts."""


STEPS = 1000
"""Of the commands that READMEs show."""

TRAIN_PY = Program(
    name="train.py",
    data="--data {corpus}",
    steps=("--steps", f"{STEPS}"),
    saves=("--output", "{folder}", "--save-every", "100", "--resume", "latest"),
    goes_on="--resume latest",
)

_OTHERS: Mapping[str, Program] = MappingProxyType(
    {
        "megatron": Program(
            name="pretrain_gpt.py",
            data="--data-path corpus_text_document",
            steps=("--train-iters", f"{STEPS}"),
            saves=("--save", "{folder}", "--load", "{folder}", "--save-interval", "100"),
            goes_on="--load",
            environment="MEGATRON_PATH=~/Megatron-LM ",
            readme="megatron/README.md",
        ),
        "torchtitan": Program(
            name="torchtitan.train",
            data="--dataloader.dataset c4_test --dataloader.dataset_path corpus",
            steps=("--training.steps", f"{STEPS}"),
            saves=(
                "--checkpoint.enable",
                *("--checkpoint.interval", "100"),
                *("--dump_folder", "{folder}"),
            ),
            goes_on="--checkpoint.enable",
            readme="torchtitan/README.md",
        ),
    }
)
"""By target; all others have a train.py."""


def program_of(target: Target) -> Program:
    """Return what a target's launch.sh starts."""
    return _OTHERS.get(target.name, TRAIN_PY)


def main_program(targets: Sequence[Target]) -> Program:
    """Return what the README of a bundle is about: train.py wherever there is one."""
    programs = [program_of(target) for target in targets]
    return programs[0] if programs and TRAIN_PY not in programs else TRAIN_PY
