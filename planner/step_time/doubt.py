"""How far a step may be off: half-widths of its range by what they come from, and the range.

Each cause is off by a share of the seconds that hang on it, by itself and not with the others: a kernel that is
slower than its curve says nothing of the network. So half-widths add as squares:

    high = step + u * H,  low = step / (1 + H / step),  H^2 = sum over causes of (spread * seconds)^2

Notation: u slower_factor: what a model leaves out makes a run slower, seldom faster.
Source: the framework record's uncertainty section; data/calibration/doubt.toml by kind of job; docs/accuracy/runs.md has what the ranges cover of every source.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from planner.catalog.kinds import spreads_of_kinds
from planner.collectives import operations
from planner.core.term import Amount, Term
from planner.domain.cluster import Group, Provenance
from planner.domain.job import Job
from planner.domain.kinds import by_kind
from planner.domain.strategy import Strategy
from planner.step_time.micro_batch import Aside, MicroBatch
from planner.step_time.terms import COMMUNICATION, StepTerm


class Cause(StrEnum):
    """What makes a range wide."""

    KERNELS = "kernels"
    CURVE = "curve"
    MEMORY_BOUND = "memory_bound"
    HOST = "host"
    NETWORK = "network"
    OFFLOAD = "offload"
    ADAPTERS = "adapters"
    RELEASE = "release"
    KIND = "kind"


_COMPUTED = (
    StepTerm.FORWARD,
    StepTerm.BACKWARD,
    StepTerm.REFERENCE_FORWARD,
    StepTerm.PIPELINE_BUBBLE,
)
_OFFLOADED = (StepTerm.OFFLOAD, StepTerm.ACTIVATION_OFFLOAD)


def half_widths(
    job: Job, s: Strategy, terms: Collection[Term], slowest: MicroBatch
) -> Mapping[Cause, Amount]:
    """Return how many seconds of the step each cause may be off by."""
    spent, known = seconds_by_cause(terms, slowest), spreads(job, s)
    return MappingProxyType({cause: known[cause] * amount for cause, amount in spent.items()})


def seconds_by_cause(terms: Collection[Term], slowest: MicroBatch) -> Mapping[Cause, Amount]:
    """Return the seconds of the step that hang on each cause; a release and a kind of job have a part in all of them.

    What the pipeline idles is what its slowest stage computes. Of the host it is what one as slow as it may be
    would add: while the GPU is behind it, a slower host costs nothing.
    """
    amounts = {term.name: term.amount for term in terms}
    computed = _sum(amounts, _COMPUTED)
    each = computed / np.maximum(slowest.computing, 1e-12)
    moving = each * slowest.of(Aside.MOVING)
    kernels = np.maximum(computed - moving - each * slowest.waiting, 0.0)
    return {
        Cause.KERNELS: kernels,
        Cause.CURVE: kernels,
        Cause.MEMORY_BOUND: moving + amounts.get(StepTerm.OPTIMIZER, 0.0),
        Cause.HOST: each * slowest.of(Aside.LATE),
        Cause.NETWORK: _sum(amounts, COMMUNICATION),
        Cause.OFFLOAD: _sum(amounts, _OFFLOADED),
        Cause.ADAPTERS: kernels,
        Cause.RELEASE: _sum(amounts, amounts),
        Cause.KIND: _sum(amounts, amounts),
    }


def spreads(job: Job, s: Strategy) -> Mapping[Cause, Amount]:
    """Return how far the seconds of each cause may be off, as a fraction of them.

    A kind's is what its runs show beside all else when no run of it has a part in the fits.
    """
    known = job.framework.uncertainty
    return {
        Cause.KERNELS: known.compute,
        Cause.CURVE: job.cluster.gpu.gemm.spread,
        Cause.MEMORY_BOUND: known.memory_bound,
        Cause.HOST: 1.0,
        Cause.NETWORK: known.communication[network_provenance(job).value],
        Cause.OFFLOAD: known.offload,
        Cause.ADAPTERS: known.adapters if job.recipe.lora else 0.0,
        Cause.RELEASE: known.named_release if job.framework.release else known.unknown_release,
        Cause.KIND: known.kind * by_kind(job, s, spreads_of_kinds()),
    }


def reach(job: Job, widths: Mapping[Cause, Amount]) -> tuple[Amount, Amount]:
    """Return H, and how many seconds the range reaches up."""
    together = np.sqrt(sum(np.square(width) for width in widths.values()))
    return together, job.framework.uncertainty.slower_factor * together


def network_provenance(job: Job) -> Provenance:
    """Return where the seconds come from of what all ranks exchange."""
    return operations.provenance(job.cluster, Group(ranks=job.cluster.world_size))


def _sum(amounts: Mapping[str, Amount], names: Collection[str]) -> Amount:
    return sum((amounts[name] for name in names if name in amounts), 0.0)
