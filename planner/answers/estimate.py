"""One layout: what was asked in, its memory, time and host memory out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, TypeVar

from planner.advice.layout_findings import layout_findings
from planner.answers.envelope import accepted, answer_error
from planner.answers.parts import finding_answer, layout_answer, term_answer
from planner.answers.rollout import refuse_rollout
from planner.core.errors import InvalidInputError, PlannerError
from planner.domain.job import Job
from planner.domain.strategy import Layout, tabulate
from planner.memory.host import HostMemory, estimate_host_memory
from planner.memory.phases import PHASES
from planner.request.remarks import Assumption
from planner.request.schema import Request, Resolved, parse_request, resolve
from planner.request.strategy import requested_layout
from planner.search.candidate import (
    Candidate,
    estimate,
    memory_of_stages,
    with_activations_away,
)
from planner.search.training_run import training_run
from planner.step_time.ledger import StepTime

if TYPE_CHECKING:
    from planner.answers.shapes import (
        CandidateAnswer,
        EstimateAnswer,
        HostMemoryAnswer,
        MemoryAnswer,
        RefusedAnswer,
        TimeAnswer,
        TrainingAnswer,
    )


_LAYERS_AWAY = "activation_offload_layers"
_OF_SUGGESTIONS = ("objective", "max_gpus", "deadline_hours", "why", "files")


def answer_estimate(request: Request, *, allow_paths: bool) -> EstimateAnswer:
    """Return the estimate of one layout.

    Raises:
        PlannerError: see `resolve` and `requested_layout`.
    """
    return estimate_answer(*estimate_request(request, allow_paths=allow_paths), request.id)


def estimate_answer(
    resolved: Resolved, candidate: Candidate, request_id: str | int | None
) -> EstimateAnswer:
    """Return one layout of a request with all that is said of it."""
    answer: EstimateAnswer = {
        **accepted(request_id),
        **candidate_answer(resolved.job, candidate),
        "findings": [
            finding_answer(finding) for finding in layout_findings(resolved.job, candidate)
        ],
        "assumptions": [asdict(assumption) for assumption in resolved.assumptions],
        "notes": list(resolved.notes),
        "machine": asdict(resolved.machine) if resolved.machine else {},
    }
    if resolved.machine is None:
        del answer["machine"]
    return answer


def estimate_request(request: Request, *, allow_paths: bool) -> tuple[Resolved, Candidate]:
    """Return the estimate of the request's layout, with its job and assumptions.

    Raises:
        PlannerError: see `resolve` and `requested_layout`.
    """
    for name in _OF_SUGGESTIONS:
        if name in request.model_fields_set:
            raise InvalidInputError(
                f"{name} is a wish for a suggestion: an estimate is of the layout it is given",
                hint="leave it out, or ask for a suggestion",
                field=name,
            )
    refuse_rollout(request)
    resolved = resolve(request, allow_paths=allow_paths, of_a_run=True)
    strategy = requested_layout(request.strategy, resolved.job)
    resolved = _with_undecided(request, resolved, strategy)
    candidate = estimate(resolved.job, strategy)
    is_left_open = resolved.machine is None and _LAYERS_AWAY not in _said(request)
    if candidate.fits or not is_left_open:
        return resolved, candidate
    return _as_such_runs_fit(resolved, candidate)


def _with_undecided(request: Request, resolved: Resolved, s: Layout) -> Resolved:
    """Return the request with what was taken where it leaves open what a suggestion decides."""
    job, said = resolved.job, request.recipe.model_fields_set
    open_stack = {
        "framework": job.framework.name,
        "compile": "no torch.compile" if job.framework.compile.is_estimated else "",
        "loss": "all logits at once" if job.model.has_token_loss and job.loss is None else "",
    }
    taken = {
        f"recipe.{name}": text for name, text in open_stack.items() if text and name not in said
    }
    found = [Assumption(text=", ".join(taken.values()), field=next(iter(taken)))] if taken else []
    if not _said(request) & {"micro_batch_size", "gradient_accumulation_steps"}:
        text = f"micro-batch {s.micro_batch_size:,}, accumulated {s.gradient_accumulation_steps:,} times"
        found.append(Assumption(text=text, field="strategy.micro_batch_size"))
    if found:
        found[-1] = replace(found[-1], text=f"{found[-1].text} (suggest finds the fastest)")
    return replace(resolved, assumptions=(*resolved.assumptions, *found))


def _said(request: Request) -> set[str]:
    return request.strategy.model_fields_set if request.strategy else set()


def _as_such_runs_fit(resolved: Resolved, candidate: Candidate) -> tuple[Resolved, Candidate]:
    layout = with_activations_away(resolved.job, candidate.strategy)
    found = estimate(resolved.job, layout) if layout else None
    if found is None or not found.fits:
        return resolved, candidate
    text = (
        f"activations of {found.strategy.activation_offload_layers} of {resolved.job.model.num_blocks} blocks wait"
        " in host memory, as nothing else fits"
    )
    assumed = Assumption(text=text, field=f"strategy.{_LAYERS_AWAY}")
    return replace(resolved, assumptions=(*resolved.assumptions, assumed)), found


def candidate_answer(job: Job, candidate: Candidate) -> CandidateAnswer:
    """Return a layout with its memory, its time, and what it needs of the host."""
    return _answer(job, candidate, estimate_host_memory(job, candidate.strategy))


def candidate_answers(job: Job, candidates: Sequence[Candidate]) -> list[CandidateAnswer]:
    """Return what `candidate_answer` does of each; a table of hosts takes hardly longer than one."""
    hosts = estimate_host_memory(job, tabulate([each.strategy for each in candidates]))
    return [_answer(job, candidate, hosts.at(row)) for row, candidate in enumerate(candidates)]


def _answer(job: Job, candidate: Candidate, host: HostMemory) -> CandidateAnswer:
    step_time = candidate.step_time
    return {
        "model": {"name": job.model.name, "parameters": job.model.parameters},
        "strategy": layout_answer(job, candidate.strategy),
        "family": candidate.strategy.family,
        "fits": bool(candidate.fits),
        "memory": _memory(job, candidate),
        "time": _time(step_time),
        "training": _training(job, candidate),
        "tokens_per_second_per_gpu": float(step_time.tokens_per_second_per_gpu),
        "model_flops_utilization": float(step_time.model_flops_utilization),
        "host_memory_bytes": round(float(host.peak_bytes)),
        "host_memory": _host_memory(host),
    }


def _memory(job: Job, candidate: Candidate) -> MemoryAnswer:
    memory = candidate.memory
    return {
        "peak_bytes": round(float(memory.peak_bytes)),
        "reserved_bytes": round(float(memory.reserved_bytes)),
        "low_bytes": round(float(memory.low_bytes)),
        "high_bytes": round(float(memory.high_bytes)),
        "peak_low_bytes": round(float(memory.peak_low_bytes)),
        "peak_high_bytes": round(float(memory.peak_high_bytes)),
        "usable_bytes": round(job.usable_bytes),
        "phase": PHASES[int(memory.phase)],
        "stages": [
            {
                "stage": index,
                "peak_bytes": round(float(stage.peak_bytes)),
                "reserved_bytes": round(float(stage.reserved_bytes)),
            }
            for index, stage in enumerate(memory_of_stages(job, candidate))
        ],
        "terms": [term_answer(term, "bytes") for term in memory.terms],
    }


def _time(step_time: StepTime) -> TimeAnswer:
    return {
        "step_seconds": float(step_time.step_seconds),
        "low_seconds": float(step_time.low_seconds),
        "high_seconds": float(step_time.high_seconds),
        "terms": [term_answer(term, "seconds") for term in step_time.terms],
    }


def _training(job: Job, candidate: Candidate) -> TrainingAnswer | None:
    run = training_run(job, candidate.step_time)
    if run is None:
        return None
    return {
        "tokens": run.tokens,
        "steps": run.steps,
        "seconds": run.seconds,
        "start_up_seconds": run.start_up_seconds,
        "low_seconds": run.low_seconds,
        "high_seconds": run.high_seconds,
        "gpu_hours": run.gpu_hours,
        "usd": run.usd or None,
        "price_date": run.price_date or None,
    }


def _host_memory(host: HostMemory) -> HostMemoryAnswer:
    return {
        "training_bytes": round(float(host.training_bytes)),
        "loading_bytes": round(float(host.loading.amount)),
        "available_bytes": round(host.available_bytes) or None,
        "fits": None if host.fits is None else bool(host.fits),
        "terms": [term_answer(term, "bytes") for term in (*host.terms, host.loading)],
    }


AnswerT = TypeVar("AnswerT")


def answer_batch(
    payloads: Iterable[object], *, allow_paths: bool
) -> Iterator[EstimateAnswer | RefusedAnswer]:
    """Yield one estimate per payload, in order; a bad one yields its error and the rest go on."""
    return answer_each(payloads, lambda request: answer_estimate(request, allow_paths=allow_paths))


def answer_each(
    payloads: Iterable[object], answer: Callable[[Request], AnswerT]
) -> Iterator[AnswerT | RefusedAnswer]:
    """Yield what `answer` gives to each payload's request, or the error of that payload alone.

    A payload that could not be read is the error itself.
    """
    for payload in payloads:
        try:
            if isinstance(payload, PlannerError):
                raise payload
            yield answer(parse_request(payload))
        except PlannerError as error:
            yield answer_error(error, request_id(payload))


def request_id(payload: object) -> str | int | None:
    """Return the id of what may be no request; an id that is no id is not echoed."""
    said = payload.get("id") if isinstance(payload, dict) else None
    return said if isinstance(said, str | int) and not isinstance(said, bool) else None
