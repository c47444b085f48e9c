"""What is not taken unasked: another tool, numbers in fewer bits, another network than the one that was assumed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from planner.advice.choice import Contender, best_of, contender
from planner.catalog.choice import trusted_lead
from planner.core.frozen import frozen
from planner.domain.job import Job
from planner.domain.optimizer import ADAMW
from planner.domain.strategy import Layout
from planner.hardware.usual_network import other_network
from planner.search.candidate import Candidate, estimate
from planner.search.largest_that_fits import adapters
from planner.search.pinned_fields import PinnedFields

_NOTABLE = 1.05
"""How many times as fast an offer is at the least, or a plan as slow on another network."""
_MOST_SEARCHED = 4096
"""Layouts of the plan's search from which on others are not searched for an offer."""
_EIGHT_BIT = "adamw-8bit"


@frozen
class Offer:
    """Another answer to the request, after a change that is the user's to make."""

    job: Job
    """In the stack that it was planned in."""
    candidate: Candidate
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the wire contract, with the values that they must have."""
    reason: str = ""
    """What the change means, in words; "" where its name says it."""
    dropped: tuple[str, ...] = ()
    """Fields that may not be said with it."""


def offers(
    chosen: Contender, found: Sequence[Contender], pinned: PinnedFields
) -> tuple[Offer, ...]:
    """Return what would be faster, or would spare the host's memory, and is not taken unasked.

    Args:
        chosen: the plan.
        found: the best of every stack that was looked at.
        pinned: values that every layout has.
    """
    return (
        *_other_tools(chosen, found),
        *_other_numbers(chosen, found, pinned),
        *_other_network(chosen, pinned),
    )


def _other_tools(chosen: Contender, found: Sequence[Contender]) -> Iterator[Offer]:
    """Yield the fastest of another framework, where such a lead is trusted although the ranges of both meet."""
    name = chosen.job.framework.name
    ahead = [
        each
        for each in found
        if (tool := each.job.framework.name) != name and each.is_written
        if chosen.cost_seconds / each.cost_seconds - 1 >= trusted_lead(tool)
    ]
    best = min(ahead, key=lambda each: (not each.keeps_weights, each.cost_seconds), default=None)
    if best is not None:
        weights = "" if best.keeps_weights else ", whose files start from random weights"
        changes = {"recipe.framework": best.job.framework.name}
        yield Offer(
            job=best.job,
            candidate=best.candidate,
            changes=changes,
            reason=f"another tool{weights}",
        )


def _other_numbers(
    chosen: Contender, found: Sequence[Contender], pinned: PinnedFields
) -> Iterator[Offer]:
    """Yield what trains in other numbers, or fewer weights, where a step is notably faster or offload is spared.

    Where the plan offloads, in whichever stack that is the best in, as asking for it would decide.
    """
    own, offloads = chosen.candidate, chosen.candidate.strategy.offloads_optimizer
    stacks = found if offloads else [chosen]
    jobs: dict[str, list[_Changed]] = {}
    for each in (change for stack in stacks for change in _changed(stack.job, own.strategy)):
        jobs.setdefault(each.reason, []).append(each)
    for reason, alike in jobs.items():
        if chosen.result.size > _MOST_SEARCHED:
            job, other = alike[0].job, estimate(alike[0].job, own.strategy)
            is_written = other.fits and chosen.is_written
        else:
            best = best_of((each.job for each in alike), pinned)
            if best is None:
                continue
            job, other, is_written = best.job, best.candidate, best.is_written
        gain = float(own.step_time.step_seconds / other.step_time.step_seconds)
        spares = offloads and not other.strategy.offloads_optimizer
        if is_written and (gain >= _NOTABLE or spares):
            yield Offer(job=job, candidate=other, changes=alike[0].changes, reason=reason)


@frozen
class _Changed:
    """A job of which other numbers are trained, or fewer."""

    changes: Mapping[str, Any]
    job: Job
    reason: str


def _changed(job: Job, layout: Layout) -> Iterator[_Changed]:
    recipe, framework, peaks = job.recipe, job.framework, job.cluster.gpu.peak_flops

    def changed(name: str, value: str, reason: str, **fields: Any) -> _Changed:
        other = replace(job, recipe=replace(recipe, **fields))
        return _Changed(changes={f"recipe.{name}": value}, job=other, reason=reason)

    if recipe.precision.endswith("-mixed") and "bf16" in peaks and "bf16" in framework.precisions:
        yield changed("precision", "bf16", "no fp32 copy of the weights", precision="bf16")
    fused = f"{recipe.optimizer}-fused"
    if fused in framework.optimizers:
        yield changed("optimizer", fused, "the same step in one kernel", optimizer=fused)
    if not layout.offloads_optimizer or recipe.lora is not None:
        return
    if recipe.optimizer in ADAMW and _EIGHT_BIT in framework.optimizers:
        yield changed("optimizer", _EIGHT_BIT, "states in 8 bit", optimizer=_EIGHT_BIT)
    for method, lora in adapters(job, Layout()):
        of_bits = f"trains adapters alone ({method})"
        other = replace(job, recipe=recipe.with_adapters(lora))
        yield _Changed(changes={"recipe.method": method.lower()}, job=other, reason=of_bits)


def _other_network(chosen: Contender, pinned: PinnedFields) -> Iterator[Offer]:
    """Yield the choice on another network, where theirs was assumed and decides the strategy."""
    link, network = other_network(chosen.job.cluster), chosen.job.cluster.inter_node
    if link is None or network is None:
        return
    there = replace(chosen.job, cluster=replace(chosen.job.cluster, inter_node=link))
    own = chosen.candidate
    same = estimate(there, own.strategy)
    if same.step_time.step_seconds < _NOTABLE * own.step_time.step_seconds:
        return
    best = contender(chosen.result.retimed(there), pinned)
    if best is None or best.candidate.strategy.family == own.strategy.family:
        return
    if best.candidate.step_time.step_seconds < same.step_time.step_seconds:
        yield Offer(
            job=best.job,
            candidate=best.candidate,
            changes={"cluster.inter_node": link.name},
            reason="if that joins the nodes",
        )
