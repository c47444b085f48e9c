"""The same training in several stacks -> the one to run, and its layout: one search, one list of prices.

A stack is what a request may leave open: the framework, with what its users switch on in it. It reads from top
to bottom: what is searched, which layouts may be proposed, what each costs beside its time, which is taken.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from planner.advice import rules
from planner.advice.refusal import check_batch, no_layout, nothing_fits
from planner.advice.rules import DISAGREEMENT
from planner.advice.rules.base import Finding, Preference, Situation
from planner.advice.situation import situation_of
from planner.advice.slow_links import crosses_slow_link
from planner.catalog.choice import prices
from planner.core.errors import InvalidInputError
from planner.core.frozen import frozen
from planner.core.term import Column
from planner.domain.job import Job
from planner.domain.strategy import rows, tabulate
from planner.hardware.usual_host import usual_host_bytes
from planner.memory.host import estimate_host_memory
from planner.search.candidate import Candidate, estimate
from planner.search.largest_that_fits import fits_somehow
from planner.search.pinned_fields import PinnedFields
from planner.search.search import TIE, SearchResult, search
from planner.targets.common import OWN_MODELS, loads_weights

_MOST_SEARCHED_TWICE = 2**15
"""Layouts with files of a stack, from which on those without are not searched to be shown beside them."""


@frozen
class Contender:
    """The best layout of one stack, and what it was chosen from."""

    result: SearchResult
    proposable: Column
    """Rows that the choice was made from."""
    row: int
    """The choice."""
    admitted: int
    """The best row that the tree's branch admits: the choice itself where it is one."""
    on_gpu: int | None
    """The best row without offload, where the choice offloads although others fit."""
    branch: Finding
    situation: Situation
    """With the choice as its candidate."""

    @property
    def job(self) -> Job:
        """Return the job in its stack."""
        return self.result.job

    @property
    def candidate(self) -> Candidate:
        """Return the choice, estimated."""
        return self.result.candidate(self.row)

    def on_fewer(self, chosen: Mapping[str, Candidate]) -> "Contender":
        """Return it with what would be chosen on fewer GPUs."""
        return replace(self, situation=replace(self.situation, on_fewer_gpus=chosen))

    @property
    def is_written(self) -> bool:
        """Return whether there are launch files."""
        return bool(self.result.is_writable[self.row])

    @property
    def keeps_weights(self) -> bool:
        """Return whether trained weights are loaded where there are some."""
        job, has_adapters = self.job, self.job.recipe.lora is not None
        is_pretrained = job.model.is_pretrained
        return not is_pretrained or loads_weights(
            _tool(self), config=self.job.model.config, has_adapters=has_adapters
        )

    @property
    def crosses_slow_link(self) -> bool:
        """Return whether matrices or sequences are divided over a link that is not NVLink."""
        return bool(crosses_slow_link(self.job, self.candidate.strategy))

    @property
    def cost_seconds(self) -> float:
        """Return a step with its prices."""
        own = self.candidate
        offload = prices().offload if own.strategy.offloads_optimizer else 0.0
        tight = 0.0 if own.is_comfortable else prices().tight_lead
        return (1 + offload) * (1 + tight) * float(self.result.weighted_seconds[self.row])


def contenders(
    stacks: Sequence[Job],
    pinned: PinnedFields,
    objective: str = "time",
    *,
    written_alone: bool = False,
) -> Iterator[Contender]:
    """Yield the best layout of each stack in which the job fits; of others than the first, those with files."""
    for job in stacks:
        result = search(job, pinned, written_alone=written_alone or job is not stacks[0])
        found = contender(result, pinned, objective) if result.size else None
        if found is not None:
            yield found


def taken(found: Sequence[Contender], pinned: PinnedFields, objective: str = "time") -> Contender:
    """Return the contender to run, with every layout of its stack searched.

    Args:
        found: at least one.
        pinned: values that every layout has.
        objective: "time", or "memory" for the smallest layout.
    """
    best = best_of_found(found, objective)
    if best is found[0] or best.result.size > _MOST_SEARCHED_TWICE:
        return best
    # Beside it are shown layouts without files too.
    whole = search(best.job, pinned)
    return contender(whole, pinned, objective) or best


def refusal(stacks: Sequence[Job], pinned: PinnedFields) -> Exception:
    """Return why a job has no layout in any stack, or fits in none."""
    result = search(stacks[0], pinned)
    if not result.size:
        return no_layout(stacks[0], pinned)

    def fits_in_another(job: Job) -> bool:
        return any(
            fits_somehow(replace(job, recipe=replace(job.recipe, loss=each.recipe.loss)), pinned)
            for each in stacks[1:]
            if each.framework.name == job.framework.name
        )

    return nothing_fits(result, pinned, lambda job: chosen_layout([job], pinned), fits_in_another)


def contender(
    result: SearchResult, pinned: PinnedFields, objective: str = "time"
) -> Contender | None:
    """Return the best of a search; None where nothing of it may be proposed."""
    on_gpu, offloaded = _proposable(result, pinned)
    if not len(on_gpu) + len(offloaded):
        return None
    either = on_gpu if len(on_gpu) else offloaded
    best = _best_row(result, either, result.weighted_seconds)
    situation = situation_of(result, either, best, pinned)
    situation = replace(situation, is_for_memory=objective == "memory")
    branch, preference = rules.branch(situation)
    if objective == "memory":
        smallest = result.smallest(either)
        return _contender(result, either, (smallest, smallest, None), situation, branch)
    if len(on_gpu):
        kept = _cheapest(result, on_gpu, preference)
        offloaded = _faster_offloaded(result, offloaded, kept[0], situation)
    if len(offloaded):
        away = _cheapest(result, offloaded, preference)
        on_gpu_row = kept[0] if len(on_gpu) else None
        chosen = (*away, on_gpu_row)
    else:
        layout = result.table.at(kept[0])
        if preference == rules.PLAIN and not preference.admits(tabulate([layout]))[0]:
            check_batch(result.job, layout, pinned)
        chosen = (*kept, None)
    proposable = np.sort(np.concatenate((on_gpu, offloaded)))
    return _contender(result, proposable, chosen, situation, branch)


def _contender(
    result: SearchResult,
    proposable: Column,
    chosen: tuple[int, int, int | None],
    situation: Situation,
    branch: Finding,
) -> Contender:
    row, admitted, on_gpu = chosen
    candidate = result.candidate(row)
    return Contender(
        result=result,
        proposable=proposable,
        row=row,
        admitted=admitted,
        on_gpu=on_gpu,
        branch=branch,
        situation=replace(
            situation,
            candidate=candidate,
            admitted=result.candidate(admitted),
            on_gpu=None if on_gpu is None else result.candidate(on_gpu),
        ),
    )


# Which layouts may be proposed


def _proposable(result: SearchResult, pinned: PinnedFields) -> tuple[Column, Column]:
    """Return the rows that may be proposed: without offload, and with it where a node's memory holds it.

    They fit, train as DDP does, and have files if any that fits has some. What is divided in every layer crosses
    NVLink, if anything else fits.
    """
    fits, table = result.fits.copy(), result.table
    if "synchronize_every" not in pinned:
        fits &= np.logical_not(table.is_local)
    may_offload = "offload" in pinned
    for written in (fits & result.is_writable, fits):
        kept = written if may_offload else written & np.logical_not(table.offloads_optimizer)
        on_gpu = _beside_slow_links(result, np.flatnonzero(kept), pinned)
        away = written & table.offloads_optimizer & (not may_offload)
        offloaded = _held(result, np.flatnonzero(away))
        if len(on_gpu) + len(offloaded):
            break
    return on_gpu, offloaded


def proposable(result: SearchResult, pinned: PinnedFields) -> Column:
    """Return the rows that may be proposed; those that offload where no other is there."""
    on_gpu, offloaded = _proposable(result, pinned)
    return on_gpu if len(on_gpu) else offloaded


def _beside_slow_links(result: SearchResult, among: Column, pinned: PinnedFields) -> Column:
    if pinned.keys() & {"tensor_parallel_size", "context_parallel_size"}:
        return among
    others = among[np.logical_not(crosses_slow_link(result.job, rows(result.table, among)))]
    return others if len(others) else among


def _held(result: SearchResult, among: Column) -> Column:
    """Return which layouts a node's memory holds, or that of such machines where it is unknown."""
    if not len(among):
        return among
    host = estimate_host_memory(result.job, rows(result.table, among))
    available = host.available_bytes or usual_host_bytes(result.job.cluster)
    held: Column = among[np.broadcast_to(host.training_bytes <= available, len(among))]
    return held


# What each costs


def _cheapest(result: SearchResult, among: Column, preference: Preference) -> tuple[int, int]:
    """Return the row that costs least, and the one that the tree's branch would take.

    What the branch does not admit must be faster by its price. Where a replica fits, ZeRO and experts that are
    dealt over the data-parallel ranks are taken for what their memory buys alone: less recompute than the best
    replica has. A stage that the framework has at a flag is taken for any lead.
    """
    table = rows(result.table, among)
    is_admitted = preference.admits(table)
    cost = result.weighted_seconds.copy()
    cost[among[np.logical_not(is_admitted)]] *= 1 + prices().against_the_tree
    admitted = result.best(among[is_admitted], cost)
    if admitted is None:
        row = _best_row(result, among, cost)
        return row, row
    is_open = preference.may_be_overruled_by(table)
    if preference == rules.PLAIN:
        by_flag = result.job.framework.capabilities.zero_by_flag
        is_flag = (table.zero_stage > 0) & (table.zero_stage <= by_flag)
        is_flag &= result.num_dimensions[among] == 0
        is_open &= is_flag | (table.recompute < result.table.recompute[admitted])
    return _best_row(result, among[is_open | is_admitted], cost), admitted


def _faster_offloaded(
    result: SearchResult, offloaded: Column, kept: int, situation: Situation
) -> Column:
    """Return the rows that offload and are worth it; none where a replica fits.

    A layout without room may not run at all: there one with room needs no more than its price. None divides a layer
    over a slow link for it.
    """
    if situation.fits_on_one_gpu or not len(offloaded):
        return offloaded[:0]
    if not crosses_slow_link(result.job, result.table.at(kept)):
        crosses = crosses_slow_link(result.job, rows(result.table, offloaded))
        offloaded = offloaded[np.logical_not(crosses)]
    price = 1 + prices().offload
    most = result.weighted_seconds[kept]
    if not result.is_comfortable[kept]:
        offloaded = offloaded[result.is_comfortable[offloaded]]
    faster: Column = offloaded[price * result.weighted_seconds[offloaded] < most]
    return faster


def _best_row(result: SearchResult, among: Column, by: Column) -> int:
    row = result.best(among, by)
    if row is None:
        raise AssertionError("rows that fit have a best")
    return row


# Which stack is taken


def best_of_found(found: Sequence[Contender], objective: str) -> Contender:
    """Return the contender to run.

    With files before without; that starts from the weights before that does not; dividing nothing over slow
    links, where another keeps its states on the GPUs without. Of the first one's framework the fastest, with the
    fewest things switched on of those within 2 %; of another framework the fastest, if one is surely faster.
    """
    able = _those(found, lambda each: each.is_written)
    able = _those(able, lambda each: each.keeps_weights)
    if any(not (_offloads(each) or each.crosses_slow_link) for each in able):
        able = _those(able, lambda each: not each.crosses_slow_link)
    if objective == "memory":
        return min(able, key=lambda each: float(each.result.reserved_bytes[each.row]))
    own = [each for each in able if _tool(each) == _tool(found[0])]
    if not own:
        return min(able, key=lambda each: each.cost_seconds)
    least = TIE * min(each.cost_seconds for each in own)
    best = next(each for each in own if each.cost_seconds <= least)
    others = (each for each in able if _tool(each) != _tool(best) and is_surely_better(each, best))
    return min(others, key=lambda each: each.cost_seconds, default=best)


def is_surely_better(other: Contender, own: Contender) -> bool:
    """Return whether another framework is worth leaving the usual one for.

    It must lead by its price. Estimates of two sets of kernels share less than those of one, so one that does not run
    transformers' models needs a longest step of its range shorter than the shortest too; not where the usual one runs the
    job without room or with the host's memory alone, and the other does not.
    """
    name, lead = _tool(other), _in_one_kernel(own) * own.cost_seconds / other.cost_seconds - 1
    longest, shortest = other.candidate.step_time.high_seconds, own.candidate.step_time.low_seconds
    relieves = _is_last_resort(own) and not _is_last_resort(other)
    is_sure = name not in OWN_MODELS or relieves or bool(longest < shortest)
    return is_sure and lead >= prices().tools.get(name, 0.0)


def _in_one_kernel(own: Contender) -> float:
    """Return the share of its step that a layout takes with the fused kind of its optimizer; 1 where there is none.

    Who names an optimizer asks for no other framework: that has its fused kind under the same name.
    """
    fused = f"{own.job.recipe.optimizer}-fused"
    if fused not in own.job.framework.optimizers:
        return 1.0
    job = replace(own.job, recipe=replace(own.job.recipe, optimizer=fused))
    seconds = estimate(job, own.candidate.strategy).step_time.step_seconds
    return float(seconds / own.candidate.step_time.step_seconds)


def _is_last_resort(each: Contender) -> bool:
    return _offloads(each) or not each.candidate.is_comfortable


def _offloads(each: Contender) -> bool:
    return bool(each.candidate.strategy.offloads_optimizer)


def _tool(each: Contender) -> str:
    return each.job.framework.name


def _those(found: Sequence[Contender], has: Callable[[Contender], bool]) -> Sequence[Contender]:
    """Return the contenders that have a property, or all where none has it."""
    return [each for each in found if has(each)] or found


# What others ask of it


def findings(chosen: Contender) -> tuple[Finding, ...]:
    """Return the branch of the tree, and where the choice is another."""
    disagreement = DISAGREEMENT.find(chosen.situation)
    return (chosen.branch, *([disagreement] if disagreement else []))


def chosen_layout(
    stacks: Sequence[Job], pinned: PinnedFields, objective: str = "time"
) -> Candidate | None:
    """Return the choice for a job; None where nothing fits, without a search for what would help."""
    found = best_of(stacks, pinned, objective)
    return None if found is None else found.candidate


def best_of(
    stacks: Iterable[Job],
    pinned: PinnedFields,
    objective: str = "time",
) -> Contender | None:
    """Return the contender that would be taken of some stacks; None where the job fits in none."""
    try:
        found = list(contenders(list(stacks), pinned, objective))
    except InvalidInputError:
        return None
    return best_of_found(found, objective) if found else None
