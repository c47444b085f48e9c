"""Job -> Plan: search every layout, let the rules name what they admit, let the cost model choose."""

import time
from collections.abc import Callable
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
from planner.advice.choice import (
    Choice,
    choose_from,
    chosen_layout,
    on_fewer_gpus,
    or_offloaded,
    smaller_jobs,
)
from planner.advice.confidence import Confidence, confidence
from planner.advice.launch import Instead, best_written, on_its_gpus, surely_better
from planner.advice.path import Node, decision_path
from planner.advice.rules import verdict
from planner.advice.rules.base import Finding, OtherFramework, OtherNetwork, Situation
from planner.advice.rules.shape import keeps_experts_together
from planner.advice.rules.single_node import EIGHT_BIT, leaves_8_bit_open
from planner.advice.rules.verdict import SHOWN_FRACTION
from planner.advice.so_far import choose_in_time, or_so_far
from planner.catalog import records
from planner.core.errors import Remedy
from planner.core.frozen import frozen
from planner.core.term import Column
from planner.domain.dimensions import DIMENSIONS
from planner.domain.framework import Framework
from planner.domain.job import Job
from planner.domain.optimizer import ADAMW
from planner.domain.strategy import Offload, rows
from planner.hardware.usual_network import other_network
from planner.search.candidate import Candidate, estimate
from planner.search.largest_that_fits import remedies
from planner.search.pinned_fields import PinnedFields
from planner.search.search import TIE, SearchResult
from planner.targets import Launch, launch, targets_of


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
    """Of a step with the spare ones; 0 where there are none."""
    instead: Instead | None = None
    """What has launch files, where the choice has none; or is surely faster in another framework."""
    notes: tuple[str, ...] = ()
    """Numbers of GPUs that were left out, and why."""


def make_plan(job: Job, pinned: PinnedFields | None = None, objective: str = "time") -> Plan:
    """Return the plan for a job; on fewer of its GPUs where those are as fast as all of them.

    Args:
        job: what is to be trained, on what.
        pinned: values of `Layout` fields that every considered layout must have.
        objective: "time", or "memory" for the smallest layout.

    Raises:
        InvalidInputError: the batch does not split over the GPUs, or no layout has the pinned fields.
        NothingFitsError: no layout fits; says by how much and what would fit.
        SoFarError: somebody waits, and the time was over.
    """
    started = time.perf_counter()
    choice = choose_in_time(job, pinned, objective)
    with or_so_far(choice):
        return _plan(choice, pinned, objective, started)


def _plan(choice: Choice, pinned: PinnedFields | None, objective: str, started: float) -> Plan:
    job, result, chosen = choice.result.job, choice.result, choice.situation.candidate
    best, launched = best_of_families(result), launch(job, chosen.strategy)
    with_8_bit = written_with_8_bit(choice.situation, pinned or {}, objective)
    situation = replace(
        choice.situation,
        on_fewer_gpus=on_fewer_gpus(job),
        on_other_network=on_other_network(
            job, chosen, lambda there: _choice_there(choice, there, pinned or {}, objective)
        ),
        held_back=_held_back(result, chosen, best, launched, objective),
        unchanged=_unchanged(choice),
        with_8_bit=with_8_bit,
        kept_on_gpu=() if pinned or objective != "time" else _kept_on_gpu(choice, with_8_bit),
        on_larger_host=_on_larger_host(job, chosen, pinned or {}, objective),
        with_dealt_experts=None if pinned or objective != "time" else with_dealt_experts(job),
    )
    fewer = None if pinned or objective != "time" else verdict.fewer_gpus(situation)
    if fewer:
        return _on_fewer(situation, fewer)
    # One table is quicker than one for each list.
    result.candidates(shown(result, choice.proposable, best))
    return Plan(
        job=job,
        chosen=chosen,
        launch=launched,
        findings=(*choice.findings, *rules.judge(situation)),
        alternatives=alternatives(result, chosen, best, launched),
        rejected=(*too_large(situation, result, best), *forbidden(job, pinned)),
        pareto=pareto(situation, result, choice.proposable),
        search=SearchSummary(
            strategies=result.size,
            feasible=int(np.sum(result.fits)),
            seconds=time.perf_counter() - started,
        ),
        confidence=confidence(job, chosen),
        path=decision_path(choice.situation, choice.findings[0].code),
        instead=_instead(situation, launched, pinned or {}, objective),
    )


def _instead(
    situation: Situation, launched: Launch, pinned: PinnedFields, objective: str
) -> Instead | None:
    if not launched.targets:
        return best_written(situation.job, pinned, objective)
    return surely_better(situation, pinned) if objective == "time" else None


def _choice_there(choice: Choice, there: Job, pinned: PinnedFields, objective: str) -> Candidate:
    retimed = choice.result.retimed(there)
    chosen = choose_from(retimed, choice.ordinary, pinned, objective)
    return or_offloaded(chosen, pinned, objective).situation.candidate


def _on_fewer(situation: Situation, size: str) -> Plan:
    job = situation.job
    smaller = make_plan(smaller_jobs(job)[size])
    branch, *others = smaller.findings
    spared = rules.spared(situation, size)
    codes = {finding.code for finding in spared}
    return replace(
        smaller,
        findings=(branch, *spared, *(finding for finding in others if finding.code not in codes)),
        instead=on_its_gpus(smaller.instead, smaller.job, is_mixed=bool(job.cluster.larger_gpus)),
        spare_gpus=job.cluster.world_size - smaller.job.cluster.world_size,
        all_gpus_seconds=float(situation.candidate.step_time.step_seconds),
    )


def _kept_on_gpu(choice: Choice, with_8_bit: Candidate | None) -> tuple[Remedy, ...]:
    """Return how the job fits on GPUs alone where it does not as it is.

    By another loss, smaller states that have files, adapters, and more GPUs: the first of each kind.
    """
    situation = choice.situation
    if situation.on_gpu or not situation.candidate.strategy.offloads_optimizer:
        return ()
    kept = {"offload": Offload.NONE}
    found = remedies(situation.job, kept, lambda other: chosen_layout(other, kept))
    others = [each for each in found if each.field != "recipe.optimizer"]
    found = [*_standard_loss(situation.job, kept), *kept_with_8_bit(with_8_bit), *others]
    firsts = (
        next((each for each in found if each.field == field), None)
        for field in ("recipe.loss", "recipe.optimizer", "recipe.method", "cluster.nodes")
    )
    return tuple(each for each in firsts if each)


def _standard_loss(job: Job, kept: PinnedFields) -> list[Remedy]:
    """Return the loss with all logits where the job's own restricts the layouts so that none fits."""
    if job.loss is None:
        return []
    standard = replace(job, recipe=replace(job.recipe, loss="standard"))
    if chosen_layout(standard, kept) is None:
        return []
    text = "a standard loss would fit (--loss standard)"
    return [Remedy(text=text, field="recipe.loss", value="standard")]


def _on_larger_host(
    job: Job, chosen: Candidate, pinned: PinnedFields, objective: str
) -> Candidate | None:
    offload, seconds = chosen.strategy.offload, chosen.step_time.step_seconds
    is_held = "offload" in pinned or job.cluster.host_memory_bytes > 0 or objective != "time"
    if is_held or not chosen.strategy.offloads_optimizer:
        return None
    asked = chosen_layout(job, {**pinned, "offload": offload})
    is_faster = asked and seconds > (1 + SHOWN_FRACTION) * asked.step_time.step_seconds
    return asked if is_faster else None


def _unchanged(choice: Choice) -> Candidate | None:
    """Return the best without changes of the model's code, where the choice takes some."""
    result, changing = choice.result, choice.result.job.framework.capabilities.changes_model
    used = [dimension for dimension in DIMENSIONS if dimension.name in changing]
    if not any(choice.situation.candidate.strategy.uses(each) for each in used):
        return None
    table = rows(result.table, choice.proposable)
    is_changed = np.any(np.array([table.uses(dimension) for dimension in used]), axis=0)
    row = result.best(choice.proposable[np.logical_not(is_changed)], result.weighted_seconds)
    return None if row is None else result.candidate(row)


def _held_back(
    result: SearchResult,
    chosen: Candidate,
    best: dict[str, int],
    launched: Launch,
    objective: str,
) -> Candidate | None:
    """Return the fastest of the other families, or without files, where it is faster than the choice.

    One that can be run as the choice can, with files and with as much room, goes before all others.
    """
    family = chosen.strategy.family
    others = [row for name, row in best.items() if name != family]
    is_other = result.table.is_local | result.table.offloads_optimizer | result.is_writable
    unwritten = np.flatnonzero(result.is_comfortable & np.logical_not(is_other))
    if len(unwritten) and launched.targets:
        others.append(int(unwritten[np.argmin(result.step_seconds[unwritten])]))
    told = np.where(result.table.offloads_optimizer, 1 + SHOWN_FRACTION, TIE)
    own = float(chosen.step_time.step_seconds)
    faster = [row for row in others if told[row] * result.step_seconds[row] < own]
    if not faster or objective != "time":
        return None
    is_local: Column = np.asarray(result.table.is_local)
    is_ready = result.is_writable & np.logical_not(is_local)
    if chosen.is_comfortable:
        is_ready &= result.is_comfortable
    pool = [row for row in faster if is_ready[row]] or faster
    # Of those that no estimate tells apart the simplest is named, as it would be proposed. What local SGD
    # gains by recomputing less, the same data parallelism gains too.
    alike = TIE * min(result.step_seconds[row] for row in pool)
    nearest = [row for row in pool if result.step_seconds[row] <= alike]
    is_hybrid: Column = np.asarray(result.table.is_hybrid)
    techniques = result.num_dimensions + is_hybrid
    found = min(nearest, key=lambda row: (is_local[row], techniques[row], result.step_seconds[row]))
    return result.candidate(found)


def written_with_8_bit(
    situation: Situation, pinned: PinnedFields, objective: str
) -> Candidate | None:
    """Return what the same request with `--optimizer adamw-8bit` writes.

    None where that is not open or not written, nor where the chosen layout can have it as it is.
    """
    if not leaves_8_bit_open(situation):
        return None
    job, chosen = situation.job, situation.candidate.strategy
    changed = replace(job, recipe=replace(job.recipe, optimizer=EIGHT_BIT))
    if not chosen.offloads_optimizer and launch(changed, chosen).targets:
        return None
    candidate = chosen_layout(changed, pinned, objective)
    if candidate is None or not launch(changed, candidate.strategy).targets:
        return None
    return candidate


def kept_with_8_bit(candidate: Candidate | None) -> list[Remedy]:
    """Return the 8-bit AdamW as what fits without offload, where its files do."""
    if candidate is None or candidate.strategy.offloads_optimizer:
        return []
    text = f"8-bit AdamW would fit (--optimizer {EIGHT_BIT})"
    return [Remedy(text=text, field="recipe.optimizer", value=EIGHT_BIT)]


def with_dealt_experts(job: Job) -> OtherFramework | None:
    """Return the fastest choice of a framework with expert parallelism, for a mixture in one without.

    Only frameworks that have files of some model, in the recipe's precision and method; those with files
    of this choice before those without.
    """
    if not keeps_experts_together(job):
        return None
    found = [
        OtherFramework(
            name=variant.framework.name,
            chosen=chosen,
            has_files=bool(launch(variant, chosen.strategy).targets),
        )
        for framework in map(records.framework, records.framework_names())
        if (variant := _in(job, framework)) and (chosen := chosen_layout(variant, {}))
    ]
    return min(found, key=_rank, default=None)


def _rank(found: OtherFramework) -> tuple[bool, bool, float]:
    s, seconds = found.chosen.strategy, float(found.chosen.step_time.step_seconds)
    is_undealt = s.expert_parallel_size == 1
    return is_undealt, not (found.has_files or is_undealt), seconds


def _in(job: Job, framework: Framework) -> Job | None:
    """Return the job in a framework that deals experts; None where that has not what the recipe names."""
    if not framework.capabilities.expert_parallel or not targets_of(framework.name):
        return None
    recipe = job.recipe
    if recipe.optimizer in ADAMW:
        recipe = replace(recipe, optimizer=framework.usual_optimizer)
    if recipe.precision not in framework.precisions or recipe.optimizer not in framework.optimizers:
        return None
    if recipe.loss not in {"standard", *framework.losses}:
        return None
    return replace(job, framework=framework, recipe=recipe, pipeline_layout=())


NOTABLE = 1.05
"""By how much slower the plan must be on the other network for that one to be searched."""


def on_other_network(
    job: Job, chosen: Candidate, choose: Callable[[Job], Candidate]
) -> OtherNetwork | None:
    """Return the choice on the other network; None where the network is known, or hardly matters.

    Args:
        job: whose network may have been assumed.
        chosen: what was chosen for it.
        choose: how a choice is made for a job.
    """
    link = other_network(job.cluster)
    if link is None:
        return None
    there = replace(job, cluster=replace(job.cluster, inter_node=link))
    same = estimate(there, chosen.strategy)
    if same.step_time.step_seconds < NOTABLE * chosen.step_time.step_seconds:
        return None
    return OtherNetwork(link=link, chosen=choose(there), same=same)
