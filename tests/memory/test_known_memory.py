"""Memory of layouts that have every term, phase by phase, beside what it was."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from known_ledgers import check, layouts

from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.memory.evaluation_and_checkpoint import (
    checkpoint_host_bytes,
    checkpoint_peak_bytes,
    evaluation_peak_bytes,
)
from planner.memory.host import estimate_host_memory
from planner.memory.ledger import estimate_memory, phased_terms
from planner.parallel.partition import stage


def figures(job: Job, s: Layout) -> Iterator[tuple[str, list[float]]]:
    for index in {0, s.pipeline_parallel_size - 1}:
        for term in phased_terms(job, s, stage(job, s, index)):
            held = [float(np.asarray(each.value)) for each in term.phases]
            if any(held):
                yield f"{term.name} {index}", held
    memory, host = estimate_memory(job, s), estimate_host_memory(job, s)
    amounts = memory.peak_bytes, memory.reserved_bytes, memory.low_bytes, memory.high_bytes
    yield "gpu", [float(each) for each in (*amounts, memory.phase, memory.stage)]
    yield "host", [float(term.amount) for term in (*host.terms, host.loading)]
    yield (
        "beside training",
        [
            evaluation_peak_bytes(job, s),
            *(checkpoint_peak_bytes(job, s, is_full=is_full) for is_full in (False, True)),
            *(checkpoint_host_bytes(job, s, is_full=is_full) for is_full in (False, True)),
        ],
    )


def test_every_phase_of_every_term_is_what_it_was(request: pytest.FixtureRequest) -> None:
    found = ((name, dict(figures(job, s))) for name, job, s in layouts())
    update = bool(request.config.getoption("--update-golden"))
    check(Path(__file__).with_name("known_memory.json"), found, update=update)
