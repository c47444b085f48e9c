"""A command -> what it prints as it comes, and the end of all that it started, whatever happens here."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from planner.calibrate.logs.log_file import LARGEST_LOG

_MARK = "PLANNER_RACE"
"""A variable of the environment that every process of a run inherits: launchers give workers sessions of their own."""
_GONE_SECONDS = 10.0
"""That killed processes may take to give their memory back."""
_CHUNK = 2**16


class Started:
    """A command that runs in a process group of its own."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._output = process.stdout
        self._text = bytearray()

    waits = ""
    """It begins at once."""

    @property
    def text(self) -> str:
        """Return what was printed so far."""
        return self._text.decode(errors="replace")

    @property
    def status(self) -> int | None:
        """Return the exit status; None as long as it runs."""
        return self._process.poll()

    def read(self, seconds: float) -> bool:
        """Wait for more of its output; return whether there may be more to come."""
        if self._output is None:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            if not selector.select(max(0.0, seconds)):
                return self.status is None  # workers of a launcher that died hold its output open
        more = os.read(self._output.fileno(), _CHUNK)
        self._text += more[: LARGEST_LOG - len(self._text)]
        if not more:
            with suppress(subprocess.TimeoutExpired):  # it closed its output, and goes on
                self._process.wait(_GONE_SECONDS)
        return bool(more)


@contextmanager
def started(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Iterator[Started]:
    """Start a command; when the block is left, every process is killed that it started, and no other.

    Killed, for told to end the scripts would save a checkpoint first. What they had printed is read to its end.
    """
    value = token_hex(16)
    mark = f"{_MARK}={value}".encode()
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environment, _MARK: value},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except BaseException:  # Ctrl-C, when it runs already
        _kill(mark)
        raise
    running = Started(process)
    try:
        yield running
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        _kill(mark)
        process.wait()
        while running.read(0.0):
            pass
        if process.stdout is not None:
            process.stdout.close()


def _kill(mark: bytes) -> None:
    """Kill all that have a mark, and wait until they are gone."""
    until = time.monotonic() + _GONE_SECONDS
    while (left := list(_marked(mark))) and time.monotonic() < until:
        for number in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.02)


def _marked(mark: bytes) -> Iterator[int]:
    """Yield the processes that inherited a run's mark, where the system tells; of others the group alone is ended."""
    for file in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in file.read_bytes().split(b"\0"):
                yield int(file.parent.name)
