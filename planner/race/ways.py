"""A run that is to start -> what it prints as it comes: on this machine, or over ssh on its hosts."""

import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from planner.core.frozen import frozen
from planner.race.process import started
from planner.verify.run import with_own_tools

_KILLING_SECONDS = 30.0
"""That a host may take to be reached and to end a run."""
_SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
"""The user's own, which asks nobody."""
_KILL = """for _ in $(seq 20); do
  found="$(grep -ls "$1" /proc/[0-9]*/cmdline | cut -d/ -f3)"
  [[ -n "$found" ]] || exit 0
  kill -KILL $found
  sleep 0.5
done"""
"""Ends the processes whose arguments name a run's folder, as all of a run have it, and waits until they are gone."""


@frozen
class Run:
    """One run of a plan."""

    folder: Path
    """Of the plan, from the root."""
    target: str
    arguments: tuple[str, ...]
    """Of the target's launch.sh."""
    scratch: Path
    """The folder that it writes into, of this run alone."""
    seconds: float
    """That it may take once it has begun."""


class Running(Protocol):
    """A run that was started."""

    @property
    def text(self) -> str:
        """Return what was printed so far."""

    @property
    def status(self) -> int | None:
        """Return the exit status; None as long as it runs."""

    @property
    def waits(self) -> str:
        """Return why it has not begun yet, "" once it has."""

    def read(self, seconds: float) -> bool:
        """Wait for more of its output; return whether there may be more to come."""


class Way(Protocol):
    """How runs are started, and ended with all that they started."""

    @property
    def on_cpus(self) -> bool:
        """Return whether they train on CPUs."""

    @property
    def launcher(self) -> str:
        """Return whose launch files start them, "" for those of the target itself."""

    @property
    def trial(self) -> str:
        """Return what to try where nothing could be started, "" for nothing beside what was printed."""

    def start(self, run: Run) -> AbstractContextManager[Running]:
        """Start a run; when the block is left, nothing of it is."""


@frozen
class Here:
    """On this machine, by launch.sh itself."""

    on_cpus: bool = False
    launcher: str = ""
    trial: str = ""

    def start(self, run: Run) -> AbstractContextManager[Running]:
        """Start a run; see `started`."""
        command = ["bash", "launch.sh", *run.arguments]
        return started(command, run.folder / run.target, with_own_tools())


@frozen
class Ssh:
    """On hosts that see the folder under the same path, by launchers/ssh.sh."""

    hosts: tuple[str, ...]
    """One for each node."""
    on_cpus: bool = False
    launcher: str = "ssh"

    @property
    def trial(self) -> str:
        """Return what to try where nothing could be started."""
        return f"ssh -o BatchMode=yes {self.hosts[0]} true has to work for each host: no password, a known key"

    @contextmanager
    def start(self, run: Run) -> Iterator[Running]:
        """Start a run; at the end its processes are killed on every host, and then those of ssh here."""
        command = ["bash", str(launch_file(run.folder, self.launcher)), *self.hosts]
        command += ["--", *run.arguments]
        with started(command, run.folder, job_environment(run)) as running:
            try:
                yield running
            finally:
                _kill_on(self.hosts, run.scratch.name)


def _kill_on(hosts: Sequence[str], name: str) -> None:
    """End a run on its hosts, all at once."""
    # Its own command line has the pattern, which does not match itself.
    command = shlex.join(["bash", "-c", _KILL, "kill", f"[{name[0]}]{name[1:]}"])
    killing = [
        subprocess.Popen(
            [*_SSH, "--", host, command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for host in hosts
    ]
    for each in killing:
        with suppress(subprocess.TimeoutExpired):
            each.wait(_KILLING_SECONDS)
        each.kill()
        each.wait()


def launch_file(folder: Path, launcher: str) -> Path:
    """Return the file by which a launcher starts a plan."""
    return folder / "launchers" / f"{launcher}.sh"


def job_environment(run: Run) -> dict[str, str]:
    """Return the environment in which a launcher starts a run's target, in this program's environment of Python."""
    own = Path(sys.prefix)
    venv = {"VENV": str(own)} if (own / "bin" / "activate").is_file() else {}
    return {**venv, **with_own_tools(), "TARGET": run.target}
