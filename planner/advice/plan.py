"""Job -> Plan: search every layout of every stack, choose by the prices, and say what else there is."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.advice import rules
from planner.advice.alternatives import (
    Alternative,
    ParetoPoint,
    Rejected,
    alternatives,
    best_of_families,
    forbidden,
    pareto,
    shown,
    too_large,
)
from planner.advice.choice import Contender, findings
from planner.advice.confidence import Confidence, confidence
from planner.advice.fewer_gpus import on_fewer_gpus, smaller_jobs
from planner.advice.offers import Offer, offers
from planner.advice.path import Node, decision_path
from planner.advice.rollout_setup import RolloutPlan
from planner.advice.rules import verdict
from planner.advice.rules.base import (
    HALF,
    HALF_OF_EACH,
    ONE_GPU,
    ONE_NODE,
    Finding,
    Situation,
)
from planner.advice.so_far import choose_in_time, or_so_far
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.term import Column
from planner.domain.job import Job
from planner.search.candidate import Candidate
from planner.search.pinned_fields import PinnedFields
from planner.search.search import TIE, SearchResult
from planner.targets import Launch, launch


@frozen
class ClusterOption:
    """What the job takes on some of the GPUs."""

    gpus: int
    nodes: int
    step_seconds: float
    gpu_seconds_per_step: float
    run_seconds: float
    """Of the recipe's tokens; 0 where it names none."""
    usd: float
    """Of the run, or of a step where its length is unknown; 0 where no price is known."""
    is_in_time: bool | None
    """None without a deadline."""
    price_date: str
    """"" where no price is known."""


@frozen
class SearchSummary:
    """What was looked at."""

    strategies: int
    feasible: int
    seconds: float


@frozen
class Plan:
    """What to run, why, and what else was considered."""

    job: Job
    chosen: Candidate
    launch: Launch
    """Which targets write the choice."""
    findings: tuple[Finding, ...]
    """The branch of the tree first, then what the checks say of the choice."""
    alternatives: tuple[Alternative, ...]
    rejected: tuple[Rejected, ...]
    pareto: tuple[ParetoPoint, ...]
    """The fastest first."""
    search: SearchSummary
    confidence: Confidence
    path: tuple[Node, ...] = ()
    """Through the decision tree, its last node the branch that the job took."""
    options: tuple[ClusterOption, ...] = ()
    """By number of GPUs, those that fit; only where their number was open."""
    spare_gpus: int = 0
    """That were offered, and without which a step is as fast, or nearly."""
    all_gpus_seconds: float = 0.0
    """Of a step with the spare ones; 0 where there are none, or the batch has no sequences for them."""
    usual: Candidate | None = None
    """What the first stack would run, where the plan is of another framework and that one can run the job."""
    offers: tuple[Offer, ...] = ()
    """What is not taken unasked: another tool, other numbers; what has files, where the choice has none."""
    notes: tuple[str, ...] = ()
    """Numbers of GPUs that were left out, and why."""
    rollout: RolloutPlan | None = None
    """Of GRPO: where it generates, beside which the rest is the plan of the training."""


def make_plan(
    job: Job,
    pinned: PinnedFields | None = None,
    objective: str = "time",
    others: Sequence[Job] = (),
) -> Plan:
    """Return the plan for a job; on fewer of its GPUs where those are as fast as all of them.

    Args:
        job: what is to be trained, on what.
        pinned: values of `Layout` fields that every considered layout must have.
        objective: "time", or "memory" for the smallest layout.
        others: the same training in other stacks, which the request leaves open.

    Raises:
        InvalidInputError: the batch does not split over the GPUs, or no layout has the pinned fields.
        NothingFitsError: no layout fits; says by how much and what would fit.
        SoFarError: somebody waits, and the time was over.
    """
    started = time.perf_counter()
    stacks = (job, *others)
    try:
        chosen, found = choose_in_time(stacks, pinned, objective)
    except InvalidInputError as error:
        if pinned or job.recipe.global_batch_size >= job.cluster.world_size:
            raise
        try:
            return _on_half(stacks, objective)
        except InvalidInputError:
            raise error from None
    with or_so_far(chosen):
        if objective == "time":
            chosen = chosen.on_fewer(on_fewer_gpus(stacks, chosen.situation))
            size = None if pinned else verdict.fewer_gpus(chosen.situation)
            if size:
                smaller, size = _on_fewer(stacks, chosen.situation, size)
                seconds = float(chosen.candidate.step_time.step_seconds)
                return spares(chosen.situation, smaller, size, seconds)
        plan = _plan(chosen, found, pinned, objective)
        offered = offers(chosen, found, pinned or {}) if objective == "time" else ()
    others_results = (each.result for each in found if each.job is not chosen.job)
    looked_at = [chosen.result, *others_results]
    summary = SearchSummary(
        strategies=sum(each.size for each in looked_at),
        feasible=sum(int(np.sum(each.fits)) for each in looked_at),
        seconds=time.perf_counter() - started,
    )
    return replace(plan, usual=_usual(chosen, found), offers=offered, search=summary)


def _on_fewer(stacks: Sequence[Job], situation: Situation, size: str) -> tuple[Plan, str]:
    """Return the plan on fewer GPUs, and by which they are; between one node and half of them may lie the best."""
    plan = _on(stacks, size)
    if size != ONE_NODE or HALF not in situation.on_fewer_gpus:
        return plan, size
    half = _on(stacks, HALF)
    one, several = (verdict.priced_seconds(each.chosen) for each in (plan, half))
    return (half, HALF) if TIE * several < one else (plan, size)


def _on(stacks: Sequence[Job], size: str, objective: str = "time") -> Plan:
    smaller, *rest = (smaller_jobs(each)[size] for each in stacks)
    return make_plan(smaller, None, objective, rest)


def _on_half(stacks: Sequence[Job], objective: str) -> Plan:
    """Return the plan on half of the GPUs, where a batch has fewer sequences than all of them need."""
    fewer = smaller_jobs(stacks[0])
    size = next(name for name in (HALF, HALF_OF_EACH, ONE_GPU) if name in fewer)
    plan = _on(stacks, size, objective)
    return replace(plan, spare_gpus=stacks[0].cluster.world_size - plan.job.cluster.world_size)


def spares(situation: Situation, smaller: Plan, size: str, seconds: float) -> Plan:
    """Return a plan on fewer of the GPUs that were offered, with what is said of all of them.

    Args:
        situation: of the choice on all of them, which has the smaller one beside it.
        smaller: on fewer.
        size: by which they are, see `planner.advice.rules.base`.
        seconds: of a step of the smaller plan's batch on all of them.
    """
    branch, *others = smaller.findings
    spared = rules.spared(situation, size)
    codes = {finding.code for finding in spared}
    return replace(
        smaller,
        findings=(branch, *spared, *(each for each in others if each.code not in codes)),
        spare_gpus=situation.job.cluster.world_size - smaller.job.cluster.world_size,
        all_gpus_seconds=seconds,
    )


def _usual(chosen: Contender, found: Sequence[Contender]) -> Candidate | None:
    name = found[0].job.framework.name
    same = [each for each in found if each.job.framework.name == name and each.is_written]
    if chosen.job.framework.name == name or not same:
        return None
    return min(same, key=lambda each: each.cost_seconds).candidate


def _eager(chosen: Contender, found: Sequence[Contender]) -> Candidate | None:
    """Return the best without torch.compile in the same framework, where the choice is compiled."""
    own = chosen.job
    eager = [
        each
        for each in found
        if each.job.framework.name == own.framework.name and not each.job.recipe.compile
    ]
    if not own.recipe.compile or not eager:
        return None
    return min(eager, key=lambda each: each.cost_seconds).candidate


def _plan(
    chosen: Contender, found: Sequence[Contender], pinned: PinnedFields | None, objective: str
) -> Plan:
    job, result, candidate = chosen.job, chosen.result, chosen.candidate
    best, launched = best_of_families(result), launch(job, candidate.strategy)
    held_back = _held_back(result, candidate, best, launched) if objective == "time" else None
    situation = replace(chosen.situation, held_back=held_back, eager=_eager(chosen, found))
    # One table is quicker than one for each list.
    result.candidates(shown(result, chosen.proposable, best))
    return Plan(
        job=job,
        chosen=candidate,
        launch=launched,
        findings=(*findings(chosen), *rules.judge(situation)),
        alternatives=alternatives(result, candidate, best, launched),
        rejected=(*too_large(situation, result, best), *forbidden(job, pinned)),
        pareto=pareto(situation, result, chosen.proposable),
        search=SearchSummary(strategies=0, feasible=0, seconds=0.0),
        confidence=confidence(job, candidate),
        path=decision_path(chosen.situation, chosen.branch.code),
    )


def _held_back(
    result: SearchResult, chosen: Candidate, best: dict[str, int], launched: Launch
) -> Candidate | None:
    """Return the fastest of the other families, or without files, where it is notably faster than the choice.

    One that can be run as the choice can, with files and with as much room, goes before all others.
    """
    others = [row for name, row in best.items() if name != chosen.strategy.family]
    is_other = result.table.is_local | result.table.offloads_optimizer | result.is_writable
    unwritten = np.flatnonzero(result.is_comfortable & np.logical_not(is_other))
    if len(unwritten) and launched.targets:
        others.append(int(unwritten[np.argmin(result.step_seconds[unwritten])]))
    own = float(chosen.step_time.step_seconds)
    told = 1 + verdict.SHOWN_FRACTION
    faster = [row for row in others if told * result.step_seconds[row] < own]
    if not faster:
        return None
    is_ready: Column = result.is_writable & np.logical_not(result.table.is_local)
    if chosen.is_comfortable:
        is_ready = is_ready & result.is_comfortable
    pool = [row for row in faster if is_ready[row]] or faster
    # What local SGD gains by recomputing less, the same data parallelism gains too.
    least = min(result.step_seconds[row] for row in pool)
    alike = [row for row in pool if result.step_seconds[row] <= TIE * least]
    is_local: Column = np.asarray(result.table.is_local)
    return result.candidate(min(alike, key=lambda row: (is_local[row], result.step_seconds[row])))
