"""Ways to train whole replicas: what was asked in, every way with its step out."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from planner.advice.choice import contenders, refusal
from planner.advice.replicas import Replicas, compare_replicas
from planner.answers.envelope import SCHEMA_VERSION
from planner.answers.parts import layout_answer, term_answer
from planner.answers.rollout import refuse_rollout
from planner.core.errors import NothingFitsError
from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.request.family import family_fields
from planner.request.schema import Request, Resolved, resolve
from planner.request.strategy import pinned_fields, requested_layout
from planner.search.pinned_fields import PinnedFields

if TYPE_CHECKING:
    from planner.answers.shapes import LocalSgdAnswer, ReplicasAnswer


def replicas_request(request: Request, *, allow_paths: bool) -> tuple[Resolved, Replicas]:
    """Return the ways to train a request's replicas.

    With a micro-batch it is the layout that was given; else the one of DDP that would be suggested.

    Raises:
        PlannerError: see `resolve`, `requested_layout`, `refusal` and `compare_replicas`.
    """
    refuse_rollout(request)
    resolved = resolve(request, allow_paths=allow_paths)
    given = pinned_fields(request.strategy)
    if "micro_batch_size" in given:
        layout = requested_layout(request.strategy, resolved.job)
    else:
        pinned = {**family_fields("ddp"), **given, "synchronize_every": 1}
        layout = _chosen(resolved.job, pinned)
    return resolved, compare_replicas(resolved.job, layout)


def _chosen(job: Job, pinned: PinnedFields) -> Layout:
    """Return the layout of DDP that would be suggested.

    Raises:
        NothingFitsError: a replica does not fit; what would help is another command's to say.
    """
    found = next(contenders([job], pinned), None)
    if found is not None:
        return found.candidate.strategy
    error = refusal([job], pinned)
    if not isinstance(error, NothingFitsError):
        raise error
    raise NothingFitsError(
        error.message,
        hint="a replica on each GPU does not fit: `planner suggest` finds what divides the model",
        field=error.field,
    )


def answer_replicas(resolved: Resolved, replicas: Replicas) -> ReplicasAnswer:
    """Return the ways as `planner replicas --json` prints them."""
    candidate, job = replicas.candidate, replicas.job
    return {
        "schema_version": SCHEMA_VERSION,
        "model": {"name": job.model.name, "parameters": job.model.parameters},
        "strategy": layout_answer(resolved.job, candidate.strategy),
        "fits": bool(candidate.fits),
        "reserved_bytes": round(float(candidate.memory.reserved_bytes)),
        "one_gpu": asdict(replicas.one_gpu),
        "ways": [asdict(way) for way in replicas.ways],
        "nn_data_parallel_exchanges": [term_answer(each, "seconds") for each in replicas.exchanges],
        "local_sgd": _local_sgd(replicas),
        "run_steps": replicas.run_steps,
        "assumptions": [asdict(assumption) for assumption in resolved.assumptions],
        "notes": list(resolved.notes),
    }


def _local_sgd(replicas: Replicas) -> LocalSgdAnswer | None:
    local = replicas.local
    if local is None:
        return None
    return {
        "fixed_seconds": local.fixed_seconds,
        "average_seconds": local.average_seconds,
        "interval": local.interval,
        "intervals": [asdict(interval) for interval in replicas.intervals],
    }
