"""Requests in, answers out: the contract's JSON objects, the same for every door."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from typing import Any

from planner.advice.budget import plan_within
from planner.advice.plan import Plan, make_plan
from planner.advice.rules import Finding
from planner.advice.why_not import Why, why
from planner.core.errors import (
    InvalidInputError,
    InvalidRequestError,
    NothingFitsError,
    PlannerError,
)
from planner.core.term import Term
from planner.domain.cluster import Instance
from planner.domain.job import Job
from planner.domain.model import Model
from planner.memory.host import estimate_host_memory
from planner.memory.ledger import stage_memories
from planner.parallel.phases import PHASES
from planner.request.schema import Request, Resolved, parse_request, resolve
from planner.request.strategy import partial_wish, whole_strategy
from planner.search.candidate import Candidate, estimate
from planner.search.largest_that_fits import smallest_layout
from planner.search.training_run import HOUR_SECONDS, training

_OF_SUGGESTIONS = ("objective", "max_gpus", "deadline_hours", "why")

SCHEMA_VERSION = "1.0"
"""Minor: fields were added. Major: fields changed."""


def answer_estimate(request: Request, *, allow_paths: bool) -> dict[str, Any]:
    """Return the estimate of one layout.

    Raises:
        PlannerError: see `resolve` and `whole_strategy`.
    """
    resolved, candidate = estimate_request(request, allow_paths=allow_paths)
    head = {"id": request.id, "ok": True, "schema_version": SCHEMA_VERSION}
    return {
        **head,
        **_estimate(resolved.job, candidate),
        "assumptions": [asdict(assumption) for assumption in resolved.assumptions],
        "notes": list(resolved.notes),
    }


def estimate_request(request: Request, *, allow_paths: bool) -> tuple[Resolved, Candidate]:
    """Return the estimate of the request's layout, with its job and assumptions.

    Raises:
        PlannerError: see `resolve` and `whole_strategy`.
    """
    for name in _OF_SUGGESTIONS:
        if name in request.model_fields_set:
            raise InvalidInputError(
                f"{name} is a wish for a suggestion: an estimate is of the layout it is given",
                hint="leave it out, or ask for a suggestion",
                field=name,
            )
    resolved = resolve(request, allow_paths=allow_paths, weights_dtype="config")
    strategy = whole_strategy(request.strategy, resolved.job)
    return resolved, estimate(resolved.job, strategy)


def memory_request(request: Request, *, allow_paths: bool) -> tuple[Resolved, Candidate]:
    """Return the layout whose memory a request asks about: the one it gives, else the suggested.

    Where nothing fits, the suggested layout is the smallest there is.

    Raises:
        PlannerError: see `resolve`, `whole_strategy` and `strategies`.
    """
    if request.strategy is not None:
        return estimate_request(request, allow_paths=allow_paths)
    resolved = resolve(request, allow_paths=allow_paths)
    try:
        return resolved, make_plan(resolved.job).chosen
    except NothingFitsError:
        return resolved, smallest_layout(resolved.job)


def suggest(request: Request, *, allow_paths: bool) -> tuple[Resolved, Plan]:
    """Return the plan for a request, with the request's job and assumptions.

    Raises:
        PlannerError: see `resolve`, `partial_wish` and `make_plan`.
    """
    resolved = resolve(request, allow_paths=allow_paths)
    wish = partial_wish(request.strategy)
    is_open = request.objective in {"gpus", "cost"} or request.max_gpus or request.deadline_hours
    if not is_open:
        return resolved, make_plan(resolved.job, wish, request.objective)
    plan = plan_within(
        resolved.job,
        wish,
        request.objective,
        max_gpus=request.max_gpus,
        deadline_seconds=(request.deadline_hours or 0) * HOUR_SECONDS or None,
    )
    return replace(resolved, job=plan.job), plan


def answer_suggestion(request: Request, resolved: Resolved, plan: Plan) -> dict[str, Any]:
    """Return the contract's answer to a suggestion, and to the wish that it asks about."""
    answer = answer_plan(resolved, plan, request.id)
    if request.why is None:
        return answer
    return {**answer, "why": answer_why(ask_why(request, plan))}


def ask_why(request: Request, plan: Plan) -> Why:
    """Return what stands against the wish that a request asks about."""
    return why(plan, partial_wish(request.why))


def answer_plan(resolved: Resolved, plan: Plan, request_id: str | int | None) -> dict[str, Any]:
    """Return the contract's answer to a suggestion."""
    job = plan.job
    return {
        "id": request_id,
        "ok": True,
        "schema_version": SCHEMA_VERSION,
        "job": _job(job),
        "chosen": _estimate(job, plan.chosen),
        "alternatives": [
            {**_estimate(job, other.candidate), "reason": other.reason}
            for other in plan.alternatives
        ],
        "rejected": [
            {
                "strategy": asdict(row.strategy),
                "family": row.family,
                "codes": [finding.code for finding in row.findings],
                "reasons": [finding.message for finding in row.findings],
            }
            for row in plan.rejected
        ],
        "pareto": [
            {
                "gpus": point.gpus,
                "strategy": asdict(point.candidate.strategy),
                "family": point.candidate.strategy.family,
                "step_seconds": float(point.candidate.step_time.step_seconds),
                "reserved_bytes": round(float(point.candidate.memory.reserved_bytes)),
            }
            for point in plan.pareto
        ],
        "findings": [_finding(finding) for finding in plan.findings],
        "assumptions": [asdict(assumption) for assumption in resolved.assumptions],
        "notes": list(resolved.notes),
        "options": [asdict(option) for option in plan.options],
        "confidence": asdict(plan.confidence),
        "search": asdict(plan.search),
    }


def answer_why(answer: Why) -> dict[str, Any]:
    """Return what stands against a wish, or what it would cost."""
    candidate = answer.candidate
    return {
        "wish": dict(answer.wish),
        "strategy": None if candidate is None else asdict(candidate.strategy),
        "step_seconds": None if candidate is None else float(candidate.step_time.step_seconds),
        "layouts": answer.layouts,
        "findings": [_finding(finding) for finding in answer.findings],
        "comparison": answer.comparison,
    }


def answer_error(error: PlannerError, request_id: str | int | None = None) -> dict[str, Any]:
    """Return a failed line of a batch."""
    return {"id": request_id, "ok": False, "error": describe_error(error)}


def describe_error(error: PlannerError) -> dict[str, Any]:
    """Return what is wrong, where, and what to do; every problem of a request body."""
    described: dict[str, Any] = {
        "type": type(error).__name__,
        "message": error.message,
        "hint": error.hint,
        "field": error.field,
    }
    if isinstance(error, InvalidRequestError):
        described["problems"] = [asdict(problem) for problem in error.problems]
    return described


def answer_batch(payloads: Iterable[object], *, allow_paths: bool) -> Iterator[dict[str, Any]]:
    """Yield one estimate per payload, in order; a bad one yields its error and the rest go on."""
    return answer_each(payloads, lambda asked: answer_estimate(asked, allow_paths=allow_paths))


def answer_each(
    payloads: Iterable[object], answer: Callable[[Request], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield what `answer` gives to each payload's request, or the error of that payload alone."""
    for payload in payloads:
        try:
            yield answer(parse_request(payload))
        except PlannerError as error:
            yield answer_error(error, _id(payload))


def _id(payload: object) -> str | int | None:
    """Return the id of what may be no request; an id that is no id is not echoed."""
    found = payload.get("id") if isinstance(payload, dict) else None
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None


def answer_model(model: Model) -> dict[str, Any]:
    """Return what the planner knows of a model."""
    return {
        "name": model.name,
        "model_type": model.model_type,
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        "largest_layer_parameters": model.largest_layer_parameters,
        "flops_per_token_forward": model.flops_per_token(model.max_position_embeddings),
        "parts": [
            {
                "name": part.name,
                "count": part.count,
                "parameters": part.parameters,
                "linears": [asdict(linear) for linear in part.linears],
            }
            for part in model.parts
        ],
    }


def answer_instance(instance: Instance) -> dict[str, Any]:
    """Return what the planner knows of a cloud instance; what is not known is null."""
    described = asdict(instance)
    # Wiring may be empty and still known: that of the GPU's own record.
    filled = {"intra_node", "topology", "wiring", "notes"}
    return {key: value if value or key in filled else None for key, value in described.items()}


def _job(job: Job) -> dict[str, Any]:
    cluster = job.cluster
    return {
        "model": {"name": job.model.name, "parameters": job.model.parameters},
        "cluster": {
            "gpu": cluster.gpu.name,
            "gpus_per_node": cluster.gpus_per_node,
            "nodes": cluster.nodes,
            "world_size": cluster.world_size,
            "instance": cluster.instance.name if cluster.instance else None,
            "gpu_order": list(cluster.gpu_order),
            "intra_node": asdict(cluster.intra_node),
            "inter_node": asdict(cluster.inter_node) if cluster.inter_node else None,
        },
        "recipe": {**asdict(job.recipe), "framework": job.framework.name},
    }


def _estimate(job: Job, candidate: Candidate) -> dict[str, Any]:
    memory, step_time = candidate.memory, candidate.step_time
    peak = float(memory.peak_bytes)
    host = estimate_host_memory(job, candidate.strategy)
    return {
        "model": {"name": job.model.name, "parameters": job.model.parameters},
        "strategy": asdict(candidate.strategy),
        "family": candidate.strategy.family,
        "fits": bool(candidate.fits),
        "memory": {
            "peak_bytes": round(peak),
            "reserved_bytes": round(float(memory.reserved_bytes)),
            "low_bytes": round(float(memory.low_bytes)),
            "high_bytes": round(float(memory.high_bytes)),
            "usable_bytes": round(job.usable_bytes),
            "phase": PHASES[int(memory.phase)],
            "stages": [
                {
                    "stage": index,
                    "peak_bytes": round(float(stage.peak_bytes)),
                    "reserved_bytes": round(float(stage.reserved_bytes)),
                }
                for index, stage in enumerate(stage_memories(job, candidate.strategy))
            ],
            "terms": [_term(term, "bytes") for term in memory.terms],
        },
        "time": {
            "step_seconds": float(step_time.step_seconds),
            "low_seconds": float(step_time.low_seconds),
            "high_seconds": float(step_time.high_seconds),
            "terms": [_term(term, "seconds") for term in step_time.terms],
        },
        "training": _training(job, candidate),
        "tokens_per_second_per_gpu": float(step_time.tokens_per_second_per_gpu),
        "model_flops_utilization": float(step_time.model_flops_utilization),
        "host_memory_bytes": round(float(host.peak_bytes)),
        "host_memory": {
            "training_bytes": round(float(host.training_bytes)),
            "loading_bytes": round(host.loading.amount),
            "available_bytes": round(host.available_bytes) or None,
            "fits": None if host.fits is None else bool(host.fits),
            "terms": [_term(term, "bytes") for term in (*host.terms, host.loading)],
        },
    }


def _training(job: Job, candidate: Candidate) -> dict[str, Any] | None:
    run = training(job, candidate.step_time)
    if run is None:
        return None
    return {**asdict(run), "usd": run.usd or None, "price_date": run.price_date or None}


def _term(term: Term, unit: str) -> dict[str, Any]:
    amount = float(term.amount)
    return {
        "name": term.name,
        unit: round(amount) if unit == "bytes" else amount,
        "how": term.how,
        "source": term.source,
    }


def _finding(finding: Finding) -> dict[str, str]:
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": str(finding.severity),
        "message": finding.message,
    }
