"""What a tool prints in place of a topology: its own error, which says more than that there is no table."""

import re
from collections.abc import Iterable

from planner.core.errors import InvalidInputError
from planner.hardware.topology.clean import Line
from planner.hardware.topology.refusal import refusal

_FAILURES = (
    (
        re.compile(r"not supported on (?:this machine|the given system)", re.IGNORECASE),
        "rocm-smi could not read the topology",
        "run `rocm-smi --showtopo` on the host, with the driver's own version",
    ),
    (
        re.compile(r"NVIDIA-SMI has failed|Failed to initialize NVML|couldn't communicate with"),
        "nvidia-smi did not reach the driver",
        "run it on a node of the job, where `nvidia-smi` alone lists the GPUs",
    ),
    (
        re.compile(r"No devices were found"),
        "nvidia-smi found no GPU",
        "run it on a node of the job, where `nvidia-smi` alone lists the GPUs",
    ),
    (
        re.compile(r"(?:nvidia|rocm)-smi.{0,20}(?:not found|not recognized)"),
        "the tool is not there",
        "run it on a node of the job",
    ),
)
"""What a line says, what that means, and what to do."""
_SHOWN = 80


def tool_failure(lines: Iterable[Line]) -> InvalidInputError | None:
    """Return the error for an output in which a tool says why there is no topology."""
    for line in lines:
        text = " ".join(line.tokens)
        for said, what, hint in _FAILURES:
            if said.search(text[:1000]):
                shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN].rstrip('. ')} ..."
                return refusal(f"line {line.number}: {what}: {shown}", hint=hint)
    return None
