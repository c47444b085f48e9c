"""What else was considered: other families, what does not fit, what is not proposed, trade-offs."""

from collections.abc import Mapping
from dataclasses import field, replace

import numpy as np

from planner.advice import rules
from planner.advice.layout_findings import lasting_findings
from planner.advice.rules.base import ONE_GPU, ONE_NODE, ONE_PER_SEQUENCE, Finding, Situation
from planner.core.frozen import frozen
from planner.core.term import Column
from planner.core.units import format_bytes, format_pace
from planner.domain.job import Job
from planner.domain.strategy import Layout
from planner.search.candidate import Candidate
from planner.search.pinned_fields import PinnedFields, simplest_layout
from planner.search.search import SearchResult
from planner.targets import Launch, launch

MOST_ALTERNATIVES = 12
"""Families that are shown beside the choice, and as many that do not fit."""
_AS_MUCH = 0.005
"""Of memory: what no estimate tells apart."""
_ROOMIER = 0.95
"""A point of the Pareto front needs 5 % less memory than the one before."""


@frozen
class Alternative:
    """The best layout of another family, and why it was not chosen."""

    candidate: Candidate
    reason: str
    unwritten: Mapping[str, str] = field(default_factory=dict)
    """Why no target writes it, by target; empty where one does, or where none writes the choice."""


@frozen
class Rejected:
    """A family of which no layout is proposed: its nearest one, and what forbids it."""

    family: str
    strategy: Layout
    findings: tuple[Finding, ...]


@frozen
class ParetoPoint:
    """A layout than which none is both faster and smaller on as many GPUs."""

    gpus: int
    candidate: Candidate


def best_of_families(result: SearchResult) -> dict[str, int]:
    """Return the fastest row of each family that fits, of those that can be written if any can."""
    best = {
        name: result.best(_written_if_any(result, members), result.step_seconds)
        for name, members in result.families.items()
    }
    return {name: row for name, row in best.items() if row is not None}


def _written_if_any(result: SearchResult, members: Column) -> Column:
    written = members[result.is_writable[members] & result.fits[members]]
    return written if len(written) else members


def shown(result: SearchResult, ordinary: Column, best: dict[str, int]) -> list[int]:
    """Return the rows that a plan may show, to be estimated together."""
    others = _others(result, best)[: MOST_ALTERNATIVES + 1]
    return [*others, *_nearest(result, best), *_front(result, ordinary)]


def _others(result: SearchResult, best: dict[str, int]) -> list[int]:
    """Return the families' fastest rows, the best first; offload only of what needs it to fit."""
    rows = [
        row
        for name, row in best.items()
        if name.removesuffix("+offload") not in best.keys() - {name}
    ]
    return sorted(rows, key=lambda row: (not result.is_comfortable[row], result.step_seconds[row]))


def _nearest(result: SearchResult, best: dict[str, int]) -> list[int]:
    smallest = [
        result.smallest(members) for name, members in result.families.items() if name not in best
    ]
    return sorted(smallest, key=lambda row: result.reserved_bytes[row])[:MOST_ALTERNATIVES]


def alternatives(
    result: SearchResult, chosen: Candidate, best: dict[str, int], launched: Launch
) -> tuple[Alternative, ...]:
    """Return the next best family's fastest layouts; offload only of what does not fit without.

    Args:
        result: every legal layout, estimated.
        chosen: the choice.
        best: the fastest row of each family.
        launched: the targets that write the choice.
    """
    own = best.get(chosen.strategy.family)
    others = [row for row in _others(result, best) if row != own][:MOST_ALTERNATIVES]
    lacks_files = [bool(launched.targets) and not result.is_writable[row] for row in others]
    return tuple(
        _alternative(result.job, chosen, other, has_no_files=lacks)
        for other, lacks in zip(result.candidates(others), lacks_files, strict=True)
    )


def _alternative(
    job: Job, chosen: Candidate, other: Candidate, *, has_no_files: bool
) -> Alternative:
    unwritten = launch(job, other.strategy).unwritten if has_no_files else {}
    files = "; no files" if has_no_files else ""
    return Alternative(candidate=other, reason=_reason(chosen, other) + files, unwritten=unwritten)


def _reason(chosen: Candidate, alternative: Candidate) -> str:
    pace = format_pace(alternative.step_time.step_seconds, chosen.step_time.step_seconds)
    return f"{pace}, {memory_difference(alternative, chosen)}"


def memory_difference(candidate: Candidate, than: Candidate) -> str:
    """Say what a layout reserves beside another: "755 MiB less", or "as much memory" within 0.5 %."""
    more = float(candidate.memory.reserved_bytes - than.memory.reserved_bytes)
    if abs(more) < _AS_MUCH * float(than.memory.reserved_bytes):
        return "as much memory"
    return f"{format_bytes(abs(more))} {'more' if more > 0 else 'less'}"


def too_large(
    situation: Situation, result: SearchResult, best: dict[str, int]
) -> tuple[Rejected, ...]:
    """Return families of which nothing fits: the smallest layout of each, the nearest first."""
    return tuple(
        Rejected(
            family=candidate.strategy.family,
            strategy=candidate.strategy,
            findings=rules.blockers(replace(situation, candidate=candidate)),
        )
        for candidate in result.candidates(_nearest(result, best))
    )


def forbidden(job: Job, pinned: PinnedFields | None) -> tuple[Rejected, ...]:
    """Return techniques that no proposed layout has, each by the smallest layout that had it."""
    if pinned or job.cluster.world_size == 1:
        return ()
    gpus = job.cluster.joined_gpus
    techniques: dict[str, dict[str, int]] = {
        f"tp={2 * gpus}": {"tensor_parallel_size": 2 * gpus},
        "tp": {"tensor_parallel_size": 2},
        "pp": {"pipeline_parallel_size": 2},
        "pp+zero-3": {"pipeline_parallel_size": 2, "zero_stage": 3},
        "cp": {"context_parallel_size": 2},
        "ep": {"expert_parallel_size": 2, "zero_stage": 1},
        "hsdp": {"data_parallel_replicate_size": 2, "zero_stage": 3},
        "local-sgd": {"synchronize_every": 8},
    }
    if not job.model.has_experts:
        techniques.pop("ep")
    if not job.cluster.needs_network:
        techniques.pop(f"tp={2 * gpus}")
    layouts = [simplest_layout(job, values) for values in techniques.values()]
    blocked = zip(techniques, layouts, lasting_findings(job, layouts), strict=True)
    return tuple(
        Rejected(family=name, strategy=s, findings=findings)
        for name, s, findings in blocked
        if findings
    )


def pareto(situation: Situation, result: SearchResult, ordinary: Column) -> tuple[ParetoPoint, ...]:
    """Return the layouts that are the fastest in their memory, and the fastest on fewer GPUs."""
    gpus = result.job.cluster.world_size
    front = result.candidates(_front(result, ordinary))
    sizes = {
        ONE_NODE: result.job.cluster.gpus_per_node,
        ONE_PER_SEQUENCE: result.job.recipe.global_batch_size,
        ONE_GPU: 1,
    }
    fewer = [
        ParetoPoint(gpus=size, candidate=situation.on_fewer_gpus[name])
        for name, size in sizes.items()
        if name in situation.on_fewer_gpus
    ]
    return (*(ParetoPoint(gpus=gpus, candidate=candidate) for candidate in front), *fewer)


def _front(result: SearchResult, ordinary: Column) -> list[int]:
    order = ordinary[np.lexsort((result.reserved_bytes[ordinary], result.step_seconds[ordinary]))]
    front: list[int] = []
    for row in order[_drops(result.reserved_bytes[order])]:
        if not front or result.reserved_bytes[row] <= _ROOMIER * result.reserved_bytes[front[-1]]:
            front.append(int(row))
    return front


def _drops(values: Column) -> Column:
    before = np.concatenate(([np.inf], np.minimum.accumulate(values)[:-1]))
    return values < before
