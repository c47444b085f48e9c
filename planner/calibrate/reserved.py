"""What runs reserved of their cards -> how much more than is estimated this machine reserves."""

import math

import numpy as np

from planner.calibrate.runs import job_of
from planner.core.errors import InvalidInputError
from planner.core.units import MIB, format_bytes
from planner.domain.job import Job
from planner.machine.document import Machine, MemoryAnchor
from planner.memory.ledger import estimate_memory

_MOST_OF_MEMORY = 1.2
"""Of a card's nominal memory that a run may have reserved."""


def _check_room(number: int, reserved_bytes: float, job: Job) -> None:
    """Refuse what is more than a card has, or than nothing.

    Raises:
        InvalidInputError: says which run says so.
    """
    room = job.cluster.gpu.memory_bytes
    if not MIB <= reserved_bytes <= _MOST_OF_MEMORY * room:
        raise InvalidInputError(
            f"run {number + 1} reserved {format_bytes(reserved_bytes)} of one {job.cluster.gpu.name}, which has"
            f" {format_bytes(room)}",
            hint="reserved_bytes is of the fullest GPU, in bytes",
            field="--runs",
        )


def memory_anchor(machine: Machine, curves: Machine, *, allow_paths: bool) -> MemoryAnchor | None:
    """Return what runs reserve beyond what is estimated: their mean, as far as they outweigh the planner's doubt.

        more = n p^2 / (n p^2 + q^2) * mean(measured - reserved);  spread = p q / sqrt(n p^2 + q^2)

    Notation: p the framework record's doubt of memory, in bytes; q what runs differ by, half of p.
    """
    differences, widths = [], []
    for number, run in enumerate(machine.runs):
        if run.reserved_bytes is not None:
            job, layout = job_of(run, curves, allow_paths=allow_paths)
            reserved = float(estimate_memory(job, layout).reserved_bytes)
            _check_room(number, run.reserved_bytes, job)
            differences.append(run.reserved_bytes - reserved)
            widths.append(job.framework.uncertainty.memory * reserved)
    if not differences:
        return None
    prior, count = float(np.mean(widths)), len(differences)
    apart = prior / 2
    weight = count * prior**2 + apart**2
    return MemoryAnchor(
        more_bytes=count * prior**2 / weight * float(np.mean(differences)),
        spread_bytes=prior * apart / math.sqrt(weight),
        runs=count,
    )
