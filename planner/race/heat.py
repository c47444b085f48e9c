"""One run of a plan -> the seconds of its steps, its memory, and why it ended where it should not have."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from planner.calibrate.logs.layout import step_seconds
from planner.calibrate.logs.log_file import shown
from planner.calibrate.logs.reading import Reading, read_log_bytes
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.units import format_seconds
from planner.doctor.memory_numbers import number_lines
from planner.doctor.messages import diagnose_text
from planner.doctor.texts import plain
from planner.race.entrants import Entrant
from planner.race.ways import Run, Running, Way
from planner.verify.run import LAST, run_arguments, whole_log

_MOST_STEPS = 100_000
_LOOK_SECONDS = 0.2
"""Between two looks at what was printed."""
_LONGEST_DIAGNOSED = 2**20
"""Characters of the end of a log in which a failure's reason is looked for."""
_KILLED = (137, -9)
"""Exit statuses of what SIGKILL ended, of a shell and of the process itself."""
_PER_STEP = 20.0
"""Times the longest step, after which a run is taken to hang."""


@frozen
class Limits:
    """How long a run may take."""

    start_seconds: float
    """Until its first step."""
    seconds: float
    """From then on."""
    step_seconds: float
    """Without a step, once there was one; twenty times the longest where that is more."""


@frozen
class Heat:
    """What one run showed."""

    seconds: tuple[float, ...]
    """Of each step after the warm-up."""
    reading: Reading | None
    """None where it printed no step."""
    why: str = ""
    """Of a run that failed or hung."""
    held_bytes: float = 0.0
    """Of a GPU's memory that ran out; 0 of all others."""
    waited_seconds: float = 0.0
    """Until it could begin."""
    is_stopped: bool = False
    """Whether Ctrl-C ended it."""


def run_once(
    entrant: Entrant,
    limits: Limits,
    is_enough: Callable[[Sequence[float]], bool],
    way: Way,
    waits: Callable[[str], None],
) -> Heat:
    """Start a plan and read its steps until they are enough, or its time is over.

    Args:
        entrant: the plan.
        limits: its time, from when it begins.
        is_enough: whether the seconds so far say what is asked; called as they come.
        way: how it is started.
        waits: what is handed why it cannot begin yet.
    """
    # A job's nodes see the plan's folder, and not what is temporary here.
    within = entrant.folder.absolute() if way.launcher else None
    made = TemporaryDirectory(prefix="planner-race-", dir=within, ignore_cleanup_errors=True)
    with made as path:
        scratch, why, waited, is_stopped = Path(path), "", 0.0, False
        with way.start(_run_of(entrant, limits, scratch, on_cpus=way.on_cpus)) as running:
            try:
                waited = _wait(running, waits)
                why = _follow(running, entrant, limits, is_enough)
            except KeyboardInterrupt:
                is_stopped = True
            status = running.status
        reading = _reading(whole_log(running.text, scratch))
    seconds = _seconds(reading, entrant)
    held = 0.0
    if status and not why and not is_stopped:
        why, held = _reason(running.text, status)
    elif status == 0 and not seconds and not is_stopped:
        count = _printed(reading)
        why = f"it ended by itself after {count} step{'s'[: count != 1]}: too few to time"
    return Heat(
        seconds=seconds,
        reading=reading,
        why=why,
        held_bytes=held,
        waited_seconds=waited,
        is_stopped=is_stopped,
    )


def _run_of(entrant: Entrant, limits: Limits, scratch: Path, *, on_cpus: bool) -> Run:
    return Run(
        folder=entrant.folder.absolute(),
        target=entrant.target,
        arguments=tuple(run_arguments(entrant.target, _MOST_STEPS, scratch, on_cpus=on_cpus)),
        scratch=scratch,
        seconds=limits.start_seconds + limits.seconds,
    )


def _wait(running: Running, waits: Callable[[str], None]) -> float:
    """Wait until a run begins, say why as often as that changes; return the seconds."""
    begun, said = time.monotonic(), ""
    while running.waits and running.read(_LOOK_SECONDS):
        if running.waits not in {"", said}:
            said = running.waits
            waits(said)
    return time.monotonic() - begun


def _follow(
    running: Running,
    entrant: Entrant,
    limits: Limits,
    is_enough: Callable[[Sequence[float]], bool],
) -> str:
    """Read until there is enough; return why a run that still goes on has to end, "" where nothing is wrong."""
    begun = last = looked = time.monotonic()
    first, longest, steps = math.inf, 0.0, 0
    while running.read(_LOOK_SECONDS):
        now = time.monotonic()
        if now - looked >= _LOOK_SECONDS:
            looked = now
            reading = _reading(running.text.encode())
            printed = _printed(reading)
            if printed > steps:
                longest = max(longest, now - last) if steps else 0.0
                first, last, steps = min(first, now), now, printed
            seconds = _seconds(reading, entrant)
            if seconds and is_enough(seconds):
                return ""
        patience = max(limits.step_seconds, _PER_STEP * longest)
        if steps and now - last > patience:
            return f"hangs: no step for {format_seconds(now - last)}, after {steps}"
        if not steps and now - begun > limits.start_seconds:
            taken = format_seconds(now - begun)
            return f"no step in {taken}: more --minutes let it start, if it does not hang"
        if now - first > limits.seconds:
            return ""
    return ""


def _reading(log: bytes) -> Reading | None:
    try:
        return read_log_bytes("run.log", log)
    except InvalidInputError:
        return None


def _printed(reading: Reading | None) -> int:
    return len(reading.log.values) if reading and reading.log else 0


def _seconds(reading: Reading | None, entrant: Entrant) -> tuple[float, ...]:
    """Return what each step after the warm-up took."""
    if reading is None or reading.log is None or reading.steady is None:
        return ()
    typical = step_seconds(reading, entrant.planned.request)
    if not typical:
        return ()
    values = [reading.log.values[step] for step in sorted(reading.log.values)]
    kept, middle = values[reading.steady.left_out :], reading.steady.value
    is_time = reading.log.unit == "seconds"
    return tuple(typical * (each / middle if is_time else middle / each) for each in kept)


def _reason(text: str, status: int) -> tuple[str, float]:
    """Return in one line why a run ended by itself, by what `planner doctor --error` finds in its log; and what it held.

    What it held is a GPU's memory where that ran out, else 0.
    """
    said = text[-_LONGEST_DIAGNOSED:]
    if status in _KILLED:
        said += "\nkilled by signal: Killed\n"
    found = diagnose_text(said)
    held = float(found.numbers.process_bytes) if found.numbers else 0.0
    main = found.cause
    if main is None:
        last = " / ".join(shown(line) for line in text.splitlines()[-LAST:] if line.strip())
        return f"exit status {status}: {last or 'it printed nothing'}", held
    if main.symptom is None:
        return plain(main.text), held
    said_of_it = number_lines(found.numbers)[:1] if found.numbers else (plain(main.text),)
    return ": ".join([f"{main.symptom.title} ({main.symptom.code})", *said_of_it]), held
