"""What a target's launch.sh starts: this project's train.py, or a program that has words of its own."""

from collections.abc import Mapping, Sequence
from functools import cache

from planner.catalog.records import read
from planner.catalog.tables import build
from planner.core.frozen import frozen
from planner.generate.run_spec import RunSpec
from planner.generate.target import Target


@frozen
class Program:
    """A training program, and what its users type."""

    name: str
    data: str
    """Arguments that name the user's data: `{corpus}` is the file, `{folder}` where it lies, with a slash."""
    steps: tuple[str, ...]
    """Arguments for `{steps}` optimizer steps."""
    saves: tuple[str, ...]
    """Arguments that save every `{every}` steps to `{folder}`, and go on from what is there; some keep `{kept}`."""
    goes_on: str
    """Those of `saves` by which a launcher knows that the same command goes on."""
    model: str = ""
    """Arguments by which it reads the model from `{folder}`; empty where its files say that."""
    final: str = ""
    """Those by which it writes the trained model alone to `{folder}`; empty where nothing does."""
    saves_with_checkpoints: bool = False
    """Whether the trained model lies beside the checkpoints that it saves."""
    save_signal: str = ""
    """By which it saves and ends; empty where none makes it."""
    corpus: str = ""
    """What its data is called, where it is not the file of the task."""
    environment: str = ""
    """Variables that stand before a command that starts it, with a space after them."""
    readme: str = "README.md"
    """The template of a bundle's README where this is what the bundle starts."""

    @property
    def is_train_py(self) -> bool:
        """Return whether it is this project's."""
        return self.name == "train.py"


_HOUR_SECONDS = 3600
_CHECKPOINTS = 10
"""Of a run, at the least, if writing them takes less than a tenth of it."""
_WRITING = 10
"""Times what a checkpoint takes to be written pass until the next, at the least."""

KEPT = 3
"""Checkpoints that those commands keep."""


@frozen
class _Programs:
    source: str
    programs: Mapping[str, Program]


@cache
def _programs() -> Mapping[str, Program]:
    return build(_Programs, read("scripts", "programs"), "scripts/programs").programs


def save_every(spec: RunSpec) -> int:
    """Return the steps between checkpoints of those commands: a tenth of the run, or an hour's where that is fewer.

    1, 2 or 5 times a power of ten, but so many that writing takes no more than a tenth of the time, and no more than
    the run has. A run that ends loses what it did since the last one.
    """
    most = min(spec.steps / _CHECKPOINTS, _HOUR_SECONDS / spec.expected_step_seconds)
    most = max(most, _WRITING * writing_seconds(spec) / spec.expected_step_seconds)
    round_numbers = (digit * 10**power for power in range(9, -1, -1) for digit in (5, 2, 1))
    return min(next((steps for steps in round_numbers if steps <= most), 1), spec.steps)


def writing_seconds(spec: RunSpec) -> float:
    """Return how long a checkpoint takes to be written, at 1 GB/s for each node: the rate is a judgement."""
    return spec.checkpoint_bytes / (spec.nodes * 1e9)


def program_of(target: Target) -> Program:
    """Return what a target's launch.sh starts."""
    return _programs().get(target.name) or _programs()["train.py"]


def main_program(targets: Sequence[Target]) -> Program:
    """Return what the README of a bundle is about: train.py wherever there is one."""
    train_py, programs = _programs()["train.py"], [program_of(target) for target in targets]
    return programs[0] if programs and train_py not in programs else train_py
