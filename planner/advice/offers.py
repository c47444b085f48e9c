"""What is not taken unasked: another tool, numbers in fewer bits, another network than the one that was assumed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from planner.advice.choice import Contender, best_of, contender
from planner.catalog.choice import trusted_lead
from planner.core.frozen import frozen
from planner.core.units import format_rate
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


@frozen
class Offer:
    """Another answer to the request, after a change that is the user's to make."""

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
        *_other_numbers(chosen, pinned),
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
        yield Offer(candidate=best.candidate, changes=changes, reason=f"another tool{weights}")


def _other_numbers(chosen: Contender, pinned: PinnedFields) -> Iterator[Offer]:
    """Yield what trains in other numbers, or fewer weights, where a step is notably faster or offload is spared."""
    own = chosen.candidate
    for changes, job in _changed(chosen.job, own.strategy):
        if chosen.result.size > _MOST_SEARCHED:
            other = estimate(job, own.strategy)
            is_written = other.fits and chosen.is_written
        else:
            best = best_of([job], pinned)
            if best is None:
                continue
            other, is_written = best.candidate, best.is_written
        gain = float(own.step_time.step_seconds / other.step_time.step_seconds)
        spares = own.strategy.offloads_optimizer and not other.strategy.offloads_optimizer
        if is_written and (gain >= _NOTABLE or spares):
            yield Offer(candidate=other, changes=changes, reason="trains otherwise")


def _changed(job: Job, layout: Layout) -> Iterator[tuple[dict[str, Any], Job]]:
    recipe, framework, peaks = job.recipe, job.framework, job.cluster.gpu.peak_flops
    if recipe.precision.endswith("-mixed") and "bf16" in peaks and "bf16" in framework.precisions:
        yield {"recipe.precision": "bf16"}, replace(job, recipe=replace(recipe, precision="bf16"))
    if not layout.offloads_optimizer or recipe.lora is not None:
        return
    if recipe.optimizer in ADAMW and "adamw-8bit" in framework.optimizers:
        changes = {"recipe.optimizer": "adamw-8bit"}
        yield changes, replace(job, recipe=replace(recipe, optimizer="adamw-8bit"))
    for method, lora in adapters(job, Layout()):
        yield (
            {"recipe.method": method.lower()},
            replace(job, recipe=replace(recipe, lora=lora)),
        )


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
        rate = f"{link.name} ({format_rate(link.bytes_per_second)} per node)"
        reason = f"if the nodes are joined by {rate}"
        yield Offer(
            candidate=best.candidate, changes={"cluster.inter_node": link.name}, reason=reason
        )
