"""A plan: what was asked in, the choice, what else was considered and the findings out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING

from planner.advice.alternatives import ParetoPoint, Rejected
from planner.advice.budget import CutShortError, plan_within
from planner.advice.offers import Offer
from planner.advice.plan import Plan, make_plan, spares
from planner.advice.rules.base import LARGER_GPUS, Situation
from planner.advice.so_far import SoFarError
from planner.advice.why_not import WhyNot, why_not
from planner.answers.envelope import SCHEMA_VERSION
from planner.answers.estimate import candidate_answers, estimate_answer
from planner.answers.open_request import decided, nearest_written
from planner.answers.parts import finding_answer, layout_answer
from planner.answers.rollout import (
    as_trained,
    refuse_rollout,
    rollout_answer,
    suggest_rollout,
)
from planner.answers.ways_out import with_ways_out
from planner.answers.whole_step import whole_step
from planner.core import deadline
from planner.core.errors import NothingFitsError, TookTooLongError
from planner.core.units import format_bytes
from planner.domain.job import Job
from planner.domain.strategy import Choice
from planner.hardware.usual_host import usual_host_bytes, usual_host_of
from planner.request.remarks import Assumption
from planner.request.schema import Request, Resolved, resolve
from planner.request.stacks import other_stacks, usual_stack
from planner.request.strategy import pinned_fields
from planner.search.pinned_fields import AtLeast, PinnedFields
from planner.search.training_run import HOUR_SECONDS

if TYPE_CHECKING:
    from planner.answers.shapes import (
        JobAnswer,
        LaunchAnswer,
        OfferAnswer,
        ParetoAnswer,
        RejectedAnswer,
        SuggestionAnswer,
        WhyAnswer,
    )


_TO_ANSWER_SECONDS = 0.3
"""That are kept to estimate the best layout so far and to write it."""
_TO_ANSWER_SHARE = 0.2
"""Of a time so short that these seconds would be most of it: else nothing is looked at in 0.3 s."""


def suggest(request: Request, *, allow_paths: bool) -> tuple[Resolved, Plan]:
    """Return the plan for a request, with the request's job and assumptions.

    Raises:
        PlannerError: see `resolve`, `pinned_fields`, `make_plan` and `plan_within`.
    """
    try:
        return _suggest(request, allow_paths=allow_paths)
    except NothingFitsError as error:
        plan_of = partial(_suggest, allow_paths=allow_paths)
        batch = resolve(request, allow_paths=allow_paths).job.recipe.global_batch_size
        raise with_ways_out(error, request, batch, plan_of) from None


def suggest_layout(request: Request, *, allow_paths: bool) -> tuple[Resolved, Plan]:
    """Return as `suggest` the plan of a job that is one layout.

    Raises:
        PlannerError: see `suggest`; also of GRPO, where a layout is but a part.
    """
    refuse_rollout(request)
    return suggest(request, allow_paths=allow_paths)


def _suggest(request: Request, *, allow_paths: bool) -> tuple[Resolved, Plan]:
    own = usual_stack(request, allow_paths=allow_paths)
    pinned = pinned_fields(request.strategy)
    if own.job.recipe.rollout is not None:
        plan = suggest_rollout(request, own.job, pinned)
        return replace(own, job=plan.job, assumptions=(*own.assumptions, *as_trained(plan))), plan
    stacks = (own, *other_stacks(request, own, allow_paths=allow_paths))
    is_open = request.objective in {"gpus", "cost"} or request.max_gpus or request.deadline_hours
    with _in_time(request, stacks, pinned):
        if is_open:
            plan = plan_within(
                [each.job for each in stacks],
                pinned,
                request.objective,
                max_gpus=request.max_gpus,
                deadline_seconds=(request.deadline_hours or 0) * HOUR_SECONDS or None,
            )
        else:
            others = [each.job for each in stacks[1:]]
            plan = make_plan(own.job, pinned, request.objective, others)
        others_alone = _without_the_odd_gpu(request, plan, allow_paths=allow_paths)
        if others_alone is not None:
            return others_alone
        if not plan.launch.targets and request.recipe.compile and request.strategy is None:
            return _without_compile(request, plan, allow_paths=allow_paths)
        if not plan.launch.targets:
            nearest = nearest_written(request, plan, allow_paths=allow_paths)
            plan = replace(plan, offers=(*([nearest] if nearest else []), *plan.offers))
        return _of_plan(stacks, plan, pinned), plan


def _without_the_odd_gpu(
    request: Request, plan: Plan, *, allow_paths: bool
) -> tuple[Resolved, Plan] | None:
    """Return the plan without the GPU whose links hold the others back, in a batch that those divide.

    Where the batch was said, only what divides it is planned, as on any fewer GPUs.
    """
    cluster, recipe = plan.job.cluster, request.recipe
    others = cluster.larger_gpus
    is_said = recipe.global_batch_size or recipe.global_batch_tokens or request.strategy
    if others is None or cluster.topology is None or is_said or request.objective != "time":
        return None
    wanted = request.cluster.model_copy(update={"gpus_per_node": others.gpus_per_node})
    resolved, smaller = _suggest(
        request.model_copy(update={"cluster": wanted}), allow_paths=allow_paths
    )
    share = smaller.job.recipe.global_batch_size / plan.job.recipe.global_batch_size
    seconds = share * float(plan.chosen.step_time.step_seconds)
    if smaller.chosen.step_time.step_seconds > seconds:
        return None
    step_time = replace(plan.chosen.step_time, step_seconds=seconds)
    here = Situation.of_one(plan.job, replace(plan.chosen, step_time=step_time))
    here = replace(here, on_fewer_gpus={LARGER_GPUS: smaller.chosen})
    return resolved, spares(here, smaller, LARGER_GPUS, seconds)


def _without_compile(request: Request, plan: Plan, *, allow_paths: bool) -> tuple[Resolved, Plan]:
    """Return the plan without torch.compile, which nothing writes with it: that alone makes it slower."""
    recipe = request.recipe.model_copy(update={"compile": False})
    plain = request.model_copy(update={"recipe": recipe})
    resolved, found = _suggest(plain, allow_paths=allow_paths)
    why = plan.launch.reason_about("recipe.compile") or plan.launch.reason
    text = f"no torch.compile, though asked for: {why}"
    dropped = Assumption(text=text, field="recipe.compile")
    return replace(resolved, assumptions=(*resolved.assumptions, dropped)), found


@contextmanager
def _in_time(request: Request, stacks: Sequence[Resolved], pinned: PinnedFields) -> Iterator[None]:
    """Stop soon enough to answer what was found, where the time for an answer is over.

    Raises:
        TookTooLongError: it is; with the best so far, as a plan or as the estimate of a layout.
    """
    try:
        with deadline.sooner(_TO_ANSWER_SECONDS, most_share=_TO_ANSWER_SHARE):
            yield
    except CutShortError as cut:
        best = answer_plan(_of_plan(stacks, cut.plan, pinned), cut.plan, request.id)
        raise TookTooLongError(cut.message, cut.hint, best=best) from None
    except SoFarError as late:
        estimate = estimate_answer(replace(stacks[0], job=late.job), late.candidate, request.id)
        raise TookTooLongError(late.message, late.hint, best=estimate) from None


def _of_plan(stacks: Sequence[Resolved], plan: Plan, pinned: PinnedFields) -> Resolved:
    resolved = _with_host_memory(decided(plan, stacks), plan, pinned)
    return replace(resolved, job=plan.job, notes=resolved.notes + plan.notes)


def _with_host_memory(resolved: Resolved, plan: Plan, pinned: PinnedFields) -> Resolved:
    cluster = plan.job.cluster
    is_taken = plan.chosen.strategy.offloads_optimizer and "offload" not in pinned
    if cluster.host_memory_bytes or not is_taken:
        return resolved
    memory = format_bytes(usual_host_bytes(cluster))
    owner = usual_host_of(cluster)
    text = f"{memory} of host memory in a node for offloading, {owner}"
    taken = Assumption(text=text, field="cluster.instance")
    return replace(resolved, assumptions=(*resolved.assumptions, taken))


def answer_suggestion(request: Request, resolved: Resolved, plan: Plan) -> SuggestionAnswer:
    """Return the contract's answer to a suggestion, and to the fields that it asks "why not" of."""
    answer = answer_plan(resolved, plan, request.id)
    if request.why is None:
        return answer
    answer["why"] = answer_why(ask_why(request, plan))
    return answer


def answer_plan(resolved: Resolved, plan: Plan, request_id: str | int | None) -> SuggestionAnswer:
    """Return the contract's answer to a suggestion."""
    job = plan.job
    candidates = (plan.chosen, *(alternative.candidate for alternative in plan.alternatives))
    chosen, *others = candidate_answers(job, candidates)
    answer: SuggestionAnswer = {
        "id": request_id,
        "ok": True,
        "schema_version": SCHEMA_VERSION,
        "job": _job(job),
        "chosen": chosen,
        "launch": _launch(plan),
        "alternatives": [
            {**other, "reason": alternative.reason, "unwritten": dict(alternative.unwritten)}
            for alternative, other in zip(plan.alternatives, others, strict=True)
        ],
        "rejected": [_rejected(job, rejected) for rejected in plan.rejected],
        "pareto": [_point(job, point) for point in plan.pareto],
        "findings": [finding_answer(finding) for finding in plan.findings],
        "assumptions": [asdict(assumption) for assumption in resolved.assumptions],
        "notes": list(resolved.notes),
        "options": [asdict(option) for option in plan.options],
        "confidence": _confidence(plan),
        "search": asdict(plan.search),
    }
    rollout = rollout_answer(plan)
    if rollout is not None:
        answer["rollout"] = rollout
        answer["whole_step"] = whole_step(answer)
    if resolved.machine is not None:
        answer["machine"] = asdict(resolved.machine)
    return answer


def _job(job: Job) -> JobAnswer:
    cluster = job.cluster
    return {
        "model": {"name": job.model.name, "parameters": job.model.parameters},
        "cluster": {
            "gpu": cluster.gpu.name,
            "gpus_per_node": cluster.gpus_per_node,
            "nodes": cluster.nodes,
            "nvlink_domain_gpus": cluster.nvlink_domain_gpus or None,
            "world_size": cluster.world_size,
            "instance": cluster.instance.name if cluster.instance else None,
            "gpu_order": list(cluster.gpu_order),
            "intra_node": asdict(cluster.intra_node),
            "inter_node": asdict(cluster.inter_node) if cluster.inter_node else None,
        },
        "recipe": {**asdict(job.recipe), "framework": job.framework.name},
    }


def _confidence(plan: Plan) -> dict[str, object]:
    said, like = asdict(plan.confidence), plan.confidence.like
    return {**said, "like": {**said["like"], "sources": list(like.sources)}} if like else said


def _launch(plan: Plan) -> LaunchAnswer:
    launch = plan.launch
    offered = [_offer(plan.job, each) for each in plan.offers]
    return {
        "targets": list(launch.targets),
        "unwritten": launch.unwritten,
        "instead": next((each for each in offered if not launch.targets), None),
        "offers": offered,
    }


def _offer(job: Job, offer: Offer) -> OfferAnswer:
    return {
        "changes": dict(offer.changes),
        "drops_pins": bool(offer.dropped),
        "reason": offer.reason,
        "strategy": layout_answer(job, offer.candidate.strategy),
        "family": offer.candidate.strategy.family,
        "step_seconds": float(offer.candidate.step_time.step_seconds),
    }


def _rejected(job: Job, rejected: Rejected) -> RejectedAnswer:
    return {
        "strategy": layout_answer(job, rejected.strategy),
        "family": rejected.family,
        "codes": [finding.code for finding in rejected.findings],
        "reasons": [finding.message for finding in rejected.findings],
    }


def _point(job: Job, point: ParetoPoint) -> ParetoAnswer:
    strategy = point.candidate.strategy
    return {
        "gpus": point.gpus,
        "strategy": layout_answer(job, strategy),
        "family": strategy.family,
        "step_seconds": float(point.candidate.step_time.step_seconds),
        "reserved_bytes": round(float(point.candidate.memory.reserved_bytes)),
    }


def ask_why(request: Request, plan: Plan) -> WhyNot:
    """Return what stands against the fields that a request asks about, beside those that it holds fixed."""
    return why_not(plan, pinned_fields(request.why), pinned_fields(request.strategy))


def answer_why(answer: WhyNot) -> WhyAnswer:
    """Return what stands against the pinned fields, or what they would cost."""
    candidate = answer.candidate
    return {
        "wish": {name: _contract(value) for name, value in answer.pinned.items()},
        "strategy": None if candidate is None else layout_answer(answer.job, candidate.strategy),
        "step_seconds": None if candidate is None else float(candidate.step_time.step_seconds),
        "layouts": answer.layouts,
        "findings": [finding_answer(finding) for finding in answer.findings],
        "comparison": answer.comparison,
    }


def _contract(value: int) -> int | str:
    """Return a wished value as the contract writes it: a choice by its name, "2 or more" in words."""
    return str(value) if isinstance(value, Choice | AtLeast) else value
