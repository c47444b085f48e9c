"""Settings of other tools -> why they are not estimated, or what an estimate of them leaves out."""

from collections.abc import Iterator

from planner.catalog.configs import trainer_fields
from planner.configs.found import READ, Setup
from planner.configs.jobs import job_of, method_of
from planner.configs.layout import optimizer_setting, unread_precision
from planner.configs.meaning import to_nvme, written_deepspeed
from planner.configs.tools import left_out
from planner.gate.facts import one_line

_METHODS = frozenset({"dpo", "ipo", "kto", "orpo", "simpo", "ppo", "grpo", "gdpo", "rm", "cpo"})
_NVME = "what goes to NVMe is estimated as if host memory held it: the host needs less, a step takes longer"


def why_not(setup: Setup) -> str:
    """Return that a run is none of those that are estimated; "" where it is."""
    other = method_of(setup)
    unread = next((each.kind for each in setup.found if each.kind not in READ), None)
    if unread is not None and other is None:
        return f"not estimated: the files of {unread} are known here, and not read"
    written = written_deepspeed(setup)
    if written is not None:
        place = f"line {written.line} of {written.file}"
        return f"not estimated: the script writes DeepSpeed's configuration itself ({place})"
    if other is None or (job_of(other) and unread is None):
        return ""
    what = other.text.upper() if other.text in _METHODS else one_line(other.text)
    name = other.name if unread is None else other.key
    return f"not estimated: {what} ({name} in line {other.line} of {other.file})"


def left_out_of(setup: Setup) -> Iterator[str]:
    """Yield what these numbers leave out."""
    words = list(left_out(setup))
    named, precision = optimizer_setting(setup), unread_precision(setup)
    if named is not None and named.text.lower() not in trainer_fields().optimizers:
        words.append(f"{named.name} {one_line(named.text)} (taken for AdamW)")
    if precision is not None:
        words.append(f"{precision.name} (not said here)")
    if words:
        yield f"not in these numbers: {', '.join(words)}"
    if to_nvme(setup):
        yield _NVME
