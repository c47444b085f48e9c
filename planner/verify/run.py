"""A folder of launch files -> what its run prints, and the records that it logs."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer

from planner.calibrate.logs.log_file import LARGEST_LOG, shown
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.verify.planned import Planned

_TARGETS = ("torchrun", "deepspeed", "trainer")
"""Folders whose train.py can be run for so many steps, on CPUs too, and logs them."""
_LAST = 3
"""Lines of a run that failed which are shown."""
_OUT_OF_MEMORY = "out of memory"


@frozen
class Length:
    """How long a run goes on."""

    steps: int
    """Optimizer steps."""
    limit_seconds: float | None = None
    """After which it is told to end."""


def run_bundle(
    planned: Planned,
    length: Length,
    *,
    target: str | None = None,
    on_cpus: bool = False,
    show: Callable[[str], None] = print,
) -> bytes:
    """Start the launch.sh of a plan for so many steps on this machine; return its log.

    Nothing is written into the folder: the records and what training saves go into a temporary one.

    Args:
        planned: a plan of a folder of launch files, for one node.
        length: steps, and the most seconds.
        target: folder of the launch.sh; the first that there is.
        on_cpus: whether to train on CPUs.
        show: what each line of the run is handed to as it comes.

    Raises:
        InvalidInputError: there are no such files, the plan is for several nodes, or the run fails.
    """
    folder = _folder(planned, target)
    with TemporaryDirectory(prefix="planner-verify-") as scratch:
        records, output = Path(scratch) / "log.jsonl", str(Path(scratch) / "run")
        command = ["bash", "launch.sh"]
        if folder.name == "trainer":  # whose log is what it prints
            command += ["--max_steps", str(length.steps), "--save_strategy", "no"]
            command += ["--output_dir", output, "--logging_steps", "1"]
            command += ["--use_cpu", "true"] if on_cpus else []
        else:
            command += ["--steps", str(length.steps), "--no-save-model"]
            command += ["--output", output, "--log", str(records)]
            command += ["--cpu"] if on_cpus else []
        lines = _started(command, folder, show, length.limit_seconds)
        logged = records.read_bytes() if records.is_file() else b""
    return "".join(lines).encode(errors="replace")[:LARGEST_LOG] + b"\n" + logged


def _folder(planned: Planned, target: str | None) -> Path:
    folder = planned.folder
    if folder is None:
        raise InvalidInputError(
            f"{planned.name} has no launch files to run",
            hint="give a folder of `planner suggest ... --out DIR`, or the log of a run with --plan",
            field="LOG",
        )
    found = [name for name in _TARGETS if (folder / name / "launch.sh").is_file()]
    wanted = target or next(iter(found), "")
    if wanted not in found:
        there = (
            f"there are {', '.join(found)}" if found else "start its launch.sh, then give its log"
        )
        raise InvalidInputError(
            f"{planned.name} has no target {shown(wanted) or 'that can be run for a few steps'}",
            hint=f"{there}: planner verify LOG --plan {planned.name}" if not found else there,
            field="--target",
        )
    if planned.nodes > 1:
        raise InvalidInputError(
            f"{planned.name} is for {planned.nodes} nodes, and this is one machine",
            hint=f"start it there with --log FILE, then planner verify FILE --plan {planned.name}",
            field="LOG",
        )
    return folder / wanted


def _started(
    command: Sequence[str],
    folder: Path,
    show: Callable[[str], None],
    limit_seconds: float | None,
) -> list[str]:
    """Run a command to its end and return its lines; one that ran out of memory has a log as well."""
    tools = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', '')}"}
    lines: list[str] = []
    with (
        subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
        _ended_after(limit_seconds, process),
    ):
        for line in process.stdout or ():
            lines.append(line)
            show(line.rstrip("\n"))
    text = "".join(lines)
    if process.returncode and _OUT_OF_MEMORY not in text.lower():
        last = " / ".join(shown(line) for line in lines[-_LAST:] if line.strip())
        raise InvalidInputError(
            f"the run ended with exit status {process.returncode}: {last}",
            hint=f"bash {folder / 'launch.sh'} shows all of it",
            field="LOG",
        )
    return lines


@contextmanager
def _ended_after(seconds: float | None, process: subprocess.Popen[str]) -> Iterator[None]:
    """Tell a process to end after so many seconds, as its scripts do at the end of a step."""
    if seconds is None:
        yield
        return
    timer = Timer(seconds, process.terminate)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
