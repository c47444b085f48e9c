"""A run that is to start -> a job of Slurm: it waits, runs, and is cancelled when it is over."""

import math
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from planner.calibrate.logs.log_file import LARGEST_LOG
from planner.core.frozen import frozen
from planner.race.ways import Run, job_environment, launch_file

_OUTPUT = "job.out"
_SPARE_MINUTES = 5
"""Beside what a run may take: it is ended here long before Slurm would."""
_ANSWER_SECONDS = 60.0
"""That Slurm's programs may take."""
_GONE_SECONDS = 90.0
"""That a cancelled job may take to leave its nodes: Slurm itself kills after 30 s."""
_LOOKS = (0.2, 5.0)
"""Seconds between two questions to Slurm: at first, and of a job that has been there for long."""
_LOOK_SHARE = 0.1
"""Of the time since a job was submitted, which passes until it is asked about again."""
_WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD"})
_RUNNING = frozenset(
    {*_WAITING, "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"}
)
_ENDED_BY_ITSELF = frozenset({"COMPLETED", "FAILED"})
_KILLED = 137
_NUMBER = re.compile(r"^(\d+)(?:;(\S+))?$", re.MULTILINE)
_FIELD = re.compile(r"\b(JobState|Reason|ExitCode)=(\S+)")


@frozen
class Slurm:
    """As jobs of their own, by launchers/slurm.sh; SBATCH_PARTITION and the like are the user's."""

    on_cpus: bool = False
    launcher: str = "slurm"
    trial: str = (
        "sinfo shows whether Slurm answers here; SBATCH_PARTITION and SBATCH_ACCOUNT are read"
    )

    @contextmanager
    def start(self, run: Run) -> Iterator["Job"]:
        """Submit a job; when the block is left, it is cancelled, and no other."""
        minutes = math.ceil(run.seconds / 60) + _SPARE_MINUTES
        command = ["sbatch", "--parsable", "--no-requeue", f"--time={minutes}"]
        # The script's own signal is a word to save, half an hour before the end at the most.
        command += ["--signal=B:URG@60", f"--chdir={run.scratch}", f"--output={_OUTPUT}"]
        command += ["--gpus-per-node=0"] if self.on_cpus else []
        command += [str(launch_file(run.folder, self.launcher)), *run.arguments]
        job = _submitted(command, job_environment(run), run.scratch / _OUTPUT)
        try:
            yield job
        finally:
            job.end()


class Job:
    """A job that was submitted, or that Slurm refused."""

    def __init__(self, number: str, cluster: str, output: Path) -> None:
        self._number = number
        self._cluster = [f"--clusters={cluster}"] if cluster else []
        self._output = output
        self._text = bytearray()
        self._begun = self._looked = time.monotonic()
        self.status: int | None = None
        """Exit status; None as long as it waits or runs."""
        self.waits = f"job {number} waits"
        """Why it has not begun yet, "" once it has."""

    @property
    def text(self) -> str:
        """Return what was printed so far."""
        return self._text.decode(errors="replace")

    def refuse(self, said: str) -> None:
        """Take what Slurm said in place of a job as its output."""
        self._text += said.encode()
        self.status, self.waits = 1, ""

    def read(self, seconds: float) -> bool:
        """Wait for more of its output; return whether there may be more to come."""
        is_over = self.status is not None
        if not is_over:
            time.sleep(seconds)
            least, most = _LOOKS
            now = time.monotonic()
            if now - self._looked >= min(max(least, _LOOK_SHARE * (now - self._begun)), most):
                self._looked = now
                self._look()
        return self._read_file() or not is_over

    def end(self) -> None:
        """Cancel it, wait until its processes are gone, and read the rest of its output."""
        if self.status is None:
            # Killed first, for told to end the scripts would save a checkpoint.
            ending = [self._started("scancel", "--signal=KILL"), self._started("scancel")]
            for each in ending:
                with suppress(subprocess.TimeoutExpired):
                    each.wait(_ANSWER_SECONDS)
        until = time.monotonic() + _GONE_SECONDS
        while self.status is None and time.monotonic() < until:
            self._look()
            time.sleep(_LOOKS[0])
        while self._read_file():
            pass

    def _read_file(self) -> bool:
        try:
            with self._output.open("rb") as file:
                file.seek(len(self._text))
                more = file.read(LARGEST_LOG - len(self._text))
        except OSError:  # it has printed nothing
            return False
        self._text += more
        return bool(more)

    def _look(self) -> None:
        """Ask Slurm how the job stands; where it does not answer, the job stands as before."""
        found = self._asked()
        state = found.get("JobState", "")
        if not state:
            return
        reason = found.get("Reason", "None")
        words = [f"job {self._number} waits", *([reason] if reason != "None" else [])]
        self.waits = ": ".join(words) if state in _WAITING else ""
        if state not in _RUNNING:
            self._read_file()
            self.status = _status(state, found.get("ExitCode", ""))
            if state not in _ENDED_BY_ITSELF:
                self._text += f"\nSlurm ended the job: {state}\n".encode()

    def _asked(self) -> Mapping[str, str]:
        command = ["scontrol", *self._cluster, "--oneliner", "show", "job", self._number]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return {}
        if done.returncode and "invalid job id" in done.stderr.lower():
            return {"JobState": "FORGOTTEN"}
        return dict(reversed(_FIELD.findall(done.stdout)))

    def _started(self, program: str, *options: str) -> "subprocess.Popen[bytes]":
        """Start one of Slurm's programs on the job; another Ctrl-C does not end it."""
        return subprocess.Popen(
            [program, *self._cluster, *options, self._number],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _submitted(command: Sequence[str], environment: Mapping[str, str], output: Path) -> Job:
    """Submit a job; one that Slurm refuses has its words as output."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, wrong = process.communicate()
    except BaseException:  # Ctrl-C, when it may be submitted already
        _job(*process.communicate(), output).end()
        raise
    return _job(said, wrong, output)


def _job(said: str, wrong: str, output: Path) -> Job:
    found = _NUMBER.search(said)
    number, cluster = found.groups() if found else ("", "")
    job = Job(number, cluster or "", output)
    if not found:
        job.refuse(wrong or said)
    return job


def _status(state: str, said: str) -> int:
    """Return the exit status of a job as a shell has it; `said` is `status:signal`."""
    if state == "OUT_OF_MEMORY":
        return _KILLED
    status, _, signal = said.partition(":")
    found = 128 + int(signal) if signal.isdigit() and int(signal) else 0
    found = found or (int(status) if status.isdigit() else 0)
    return found or int(state != "COMPLETED")
