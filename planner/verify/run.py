"""A folder of launch files -> what its run prints, and the records that it logs."""

import os
import re
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

TARGETS = ("torchrun", "trainer")
"""Folders whose train.py can be run for so many steps, on CPUs too, and logs them."""
LAST = 3
"""Lines of a run that failed which are shown."""
_OWN = re.compile(r"(?:step |starting from |\{)")
"""How the lines begin that a script prints of its steps: others are the libraries'."""
_OUT_OF_MEMORY = "out of memory"
_RECORDS = "log.jsonl"


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
        show: what each line of its steps is handed to as it comes, and all others where it fails.

    Raises:
        InvalidInputError: there are no such files, the plan is for several nodes, or the run fails.
    """
    folder = _folder(planned, target)
    with TemporaryDirectory(prefix="planner-verify-") as made:
        scratch = Path(made)
        arguments = run_arguments(folder.name, length.steps, scratch, on_cpus=on_cpus)
        lines = _started(["bash", "launch.sh", *arguments], folder, show, length.limit_seconds)
        return whole_log("".join(lines), scratch)


def run_arguments(target: str, steps: int, scratch: Path, *, on_cpus: bool) -> list[str]:
    """Return what a target's launch.sh is given for so many steps; all that it writes goes into a folder.

    Args:
        target: one of `TARGETS`.
        steps: optimizer steps.
        scratch: the folder.
        on_cpus: whether to train on CPUs.
    """
    output = str(scratch / "run")
    if target == "trainer":  # whose log is what it prints
        arguments = ["--max_steps", str(steps), "--save_strategy", "no"]
        arguments += ["--output_dir", output, "--logging_steps", "1"]
        return arguments + (["--use_cpu", "true"] if on_cpus else [])
    arguments = ["--steps", str(steps), "--no-save-model"]
    arguments += ["--output", output, "--log", str(scratch / _RECORDS)]
    return arguments + (["--cpu"] if on_cpus else [])


def whole_log(printed: str, scratch: Path) -> bytes:
    """Return what a run printed, and the records that it logged into its folder."""
    records = scratch / _RECORDS
    logged = records.read_bytes() if records.is_file() else b""
    return printed.encode(errors="replace")[:LARGEST_LOG] + b"\n" + logged


def with_own_tools() -> dict[str, str]:
    """Return the environment in which `python` and `torchrun` are those of this program."""
    tools = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', '')}"}


def _folder(planned: Planned, target: str | None) -> Path:
    folder = planned.folder
    if folder is None:
        raise InvalidInputError(
            f"{planned.name} has no launch files to run",
            hint="give a folder of `planner suggest ... --out DIR`, or the log of a run with --plan",
            field="LOG",
        )
    found = [name for name in TARGETS if (folder / name / "launch.sh").is_file()]
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
    """Run a command to its end and return its lines; one that ran out of memory has a log as well.

    What libraries print is shown of a run that failed alone.
    """
    lines: list[str] = []
    with (
        subprocess.Popen(
            command,
            cwd=folder,
            env=with_own_tools(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
        _ended_after(limit_seconds, process),
    ):
        for line in process.stdout or ():
            lines.append(line)
            if _OWN.match(line):
                show(line.rstrip("\n"))
    text = "".join(lines)
    if process.returncode and _OUT_OF_MEMORY not in text.lower():
        for line in lines:
            if not _OWN.match(line):
                show(line.rstrip("\n"))
        last = " / ".join(shown(line) for line in lines[-LAST:] if line.strip())
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
