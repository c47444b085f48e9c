"""How the measuring program is started on this machine, and what a user types on several."""

import importlib.util
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from planner.calibrate.measure.tasks import Tasks, write_tasks
from planner.core.errors import InvalidInputError, UnsupportedError
from planner.machine.document import Machine
from planner.machine.reading import read_machine

_GRACE_SECONDS = 120.0
"""That starting, compiling and the last measurement may take beyond the budget, before all is ended."""


def measure_here(
    tasks: Tasks, *, processes: int, budget_seconds: float, is_cpu: bool, name: str = ""
) -> Machine:
    """Run the measuring program on so many devices of this machine; its progress goes to stderr.

    Raises:
        UnsupportedError: PyTorch is not installed, or the program failed.
        InvalidInputError: there is nothing to measure.
    """
    if importlib.util.find_spec("torch") is None:
        raise UnsupportedError(
            "measuring needs PyTorch",
            hint="pip install 'trainplan[torch]', or calibrate --from LOG",
        )
    if not tasks.matmuls:
        raise InvalidInputError("there is nothing to measure", hint="name a model with --model")
    with tempfile.TemporaryDirectory(prefix="planner-measure-") as folder:
        file, output = Path(folder) / "tasks.json", Path(folder) / "machine.json"
        write_tasks(tasks, file)
        words = [*_torchrun(processes), *program_words(file, output, budget_seconds, name)]
        words += ["--cpu"] if is_cpu else []
        _run(words, budget_seconds + _GRACE_SECONDS, is_cpu=is_cpu)
        return read_machine(output)


def command_of_each_node(
    program: Sequence[str], *, nodes: int, processes: int, is_cpu: bool
) -> str:
    """Return what a user types on every node, in one line, to measure all of them together.

    Args:
        program: the words after the program's name, see `program_words`.
        nodes: that measure together.
        processes: of each node, one a device.
        is_cpu: whether cores stand for GPUs.
    """
    words = [
        *("torchrun", f"--nnodes={nodes}", f"--nproc_per_node={processes}"),
        *("--rdzv_backend=c10d", "--rdzv_endpoint=HOST:29500"),
        *("-m", "planner.calibrate.measure", *program),
        *(["--cpu"] if is_cpu else []),
    ]
    return shlex.join(words)


def _torchrun(processes: int) -> list[str]:
    """Return the words that start a module: with torchrun where several processes measure together."""
    if processes == 1:
        return [sys.executable, "-m", "planner.calibrate.measure"]
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *(f"--nproc_per_node={processes}", "-m", "planner.calibrate.measure"),
    ]


def program_words(file: Path, output: Path, budget_seconds: float, name: str) -> list[str]:
    """Return what the measuring program is told: its tasks, where to write, its seconds, the machine's name."""
    words = ["--tasks", str(file), "--output", str(output), "--budget", f"{budget_seconds:g}"]
    return [*words, "--name", name] if name else words


def _run(words: list[str], limit_seconds: float, *, is_cpu: bool) -> None:
    environment = dict(os.environ)
    if is_cpu:
        environment |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    try:
        subprocess.run(words, check=True, env=environment, timeout=limit_seconds, stdout=sys.stderr)
    except subprocess.TimeoutExpired:
        raise UnsupportedError(
            f"measuring did not end within {limit_seconds:.0f} s",
            hint="give it less to do: --budget, or a smaller --model",
        ) from None
    except subprocess.CalledProcessError as error:
        raise UnsupportedError(
            f"measuring failed with exit status {error.returncode}; what it said stands above",
            hint="`planner calibrate --from LOG` needs no GPU",
        ) from None
