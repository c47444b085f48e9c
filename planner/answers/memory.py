"""Where the memory of one layout goes: every stage, beside training, and what would fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.answers.estimate import estimate_request
from planner.answers.parts import layout_answer
from planner.answers.suggestion import suggest_layout
from planner.core.errors import NothingFitsError
from planner.domain.job import Job
from planner.memory.evaluation_and_checkpoint import checkpoint_peak_bytes, evaluation_peak_bytes
from planner.memory.host import estimate_host_memory
from planner.memory.ledger import Memory
from planner.memory.phases import PHASES
from planner.request.schema import Request, Resolved, resolve
from planner.search.candidate import Candidate, memory_of_stages
from planner.search.largest_that_fits import (
    changes_that_fit,
    fewest_gpus,
    largest_micro_batch,
    longest_sequence,
    smallest_layout,
)

if TYPE_CHECKING:
    from planner.answers.memory_shapes import MemoryOfLayoutAnswer, StageAnswer


def memory_request(request: Request, *, allow_paths: bool) -> tuple[Resolved, Candidate]:
    """Return the layout whose memory a request asks about: the one it gives, else the suggested.

    Where nothing fits, the suggested layout is the smallest there is.

    Raises:
        PlannerError: see `resolve`, `requested_layout` and `strategies`.
    """
    if request.strategy is not None:
        return estimate_request(request, allow_paths=allow_paths)
    try:
        resolved, plan = suggest_layout(request, allow_paths=allow_paths)
    except NothingFitsError:
        resolved = resolve(request, allow_paths=allow_paths)
        return resolved, smallest_layout(resolved.job)
    return resolved, plan.chosen


def answer_memory(job: Job, candidate: Candidate) -> MemoryOfLayoutAnswer:
    """Return bytes, sequences, tokens and GPUs."""
    s = candidate.strategy
    host = estimate_host_memory(job, s)
    return {
        "strategy": layout_answer(job, s),
        "fits": bool(candidate.fits),
        "usable_bytes": round(job.usable_bytes),
        "stages": [
            _stage(index, memory) for index, memory in enumerate(memory_of_stages(job, candidate))
        ],
        "evaluation_peak_bytes": round(evaluation_peak_bytes(job, s)),
        "checkpoint_peak_bytes": {
            "sharded": round(checkpoint_peak_bytes(job, s, is_full=False)),
            "full": round(checkpoint_peak_bytes(job, s, is_full=True)),
        },
        "host_memory": {
            "loading_bytes": round(float(host.loading.amount)),
            "training_bytes": round(float(host.training_bytes)),
            "available_bytes": round(host.available_bytes) or None,
            "fits": None if host.fits is None else bool(host.fits),
        },
        "largest_micro_batch_size": largest_micro_batch(job, s),
        "longest_sequence_length": longest_sequence(job, s),
        "fewest_gpus": fewest_gpus(job, s),
        "changes": [
            {
                "name": change.name,
                "reserved_bytes": round(float(change.candidate.memory.reserved_bytes)),
                "slowdown": change.slowdown,
            }
            for change in ([] if candidate.fits else changes_that_fit(job, s))
        ],
    }


def _stage(index: int, memory: Memory) -> StageAnswer:
    return {
        "stage": index,
        "phase": PHASES[int(memory.phase)],
        "peak_bytes": round(float(memory.peak_bytes)),
        "reserved_bytes": round(float(memory.reserved_bytes)),
        "low_bytes": round(float(memory.low_bytes)),
        "high_bytes": round(float(memory.high_bytes)),
        "terms": [
            {"name": term.name, "bytes": round(float(term.amount)), "how": term.how}
            for term in memory.terms
        ],
    }
