"""What a rule is, what it looks at, and what it finds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

import numpy as np

from planner.core.documented import documentation, shown_name
from planner.core.errors import Remedy
from planner.core.frozen import frozen
from planner.core.term import Column
from planner.domain.cluster import Link
from planner.domain.dimensions import DIMENSIONS
from planner.domain.job import Job
from planner.domain.strategy import Table, num_rows
from planner.memory.room import COMFORTABLE_FRACTION
from planner.search.candidate import Candidate


class Severity(StrEnum):
    """How much a finding weighs."""

    BLOCKER = "blocker"
    """The layout cannot run."""
    WARNING = "warning"
    """It runs, but something will hurt."""
    ADVICE = "advice"
    """What an expert would say."""


@frozen
class OtherNetwork:
    """What becomes of a plan on a network that nodes of its GPU are sold with too."""

    link: Link
    chosen: Candidate
    """What would be chosen there."""
    same: Candidate
    """What was chosen here, there."""


@frozen
class OtherFramework:
    """What becomes of a job in a framework that can what the job's own cannot."""

    name: str
    chosen: Candidate
    """What would be chosen there."""
    has_files: bool


ONE_GPU, ONE_NODE, LARGER_GPUS = "one GPU", "one node", "the larger GPUs"
ONE_PER_SEQUENCE = "one GPU for each sequence"
"""Which of a cluster's GPUs a layout is on, where not on all."""


@frozen
class Situation:
    """What a rule judges: a job, one of its layouts, and what the search knows of the rest."""

    job: Job
    candidate: Candidate
    """The layout in question."""
    smallest_replica_bytes: float
    """Of the layout with a whole replica per GPU (DDP) that needs the least."""
    fastest: Candidate
    """The best layout that the search may follow, after what techniques must earn."""
    has_spare_context: bool = False
    """Whether a layout fits with room that leaves sequences whole, so that dividing them must earn more."""
    is_for_memory: bool = False
    """Whether the smallest layout was asked for, not the fastest."""
    lead: float = 0.0
    """How much longer the candidate takes than it, after the same; as a fraction."""
    held_back: Candidate | None = None
    """The fastest layout of all that fit, where the choice is another."""
    unchanged: Candidate | None = None
    """The best that may be proposed and changes nothing in the model's code, where the choice does."""
    on_gpu: Candidate | None = None
    """What would be chosen without offload, where the candidate offloads although other layouts fit."""
    kept_on_gpu: tuple[Remedy, ...] = ()
    """Changes after which the job fits without the offload that the candidate cannot do without."""
    with_8_bit: Candidate | None = None
    """What would be chosen, and written, of the same request with an 8-bit AdamW, where memory is short."""
    on_larger_host: Candidate | None = None
    """What is faster with the candidate's offload on a host of any size, where the host's size was assumed."""
    simplest: Candidate | None = None
    """The fastest of plain DDP that fits."""
    on_fewer_gpus: Mapping[str, Candidate] = field(default_factory=dict)
    """What would be chosen on fewer GPUs, by which they are; the fewest first."""
    with_dealt_experts: OtherFramework | None = None
    """Of a mixture whose experts the framework keeps together, where another deals them over ranks."""
    on_other_network: OtherNetwork | None = None
    """Where the network was assumed and matters."""
    asked: frozenset[str] = frozenset()
    """Fields of the layout that were held fixed at more than their least value."""
    largest_layer_bytes: float = 0.0
    """What a GPU must hold at least that runs the largest layer whole; 0 where it holds a replica."""

    @classmethod
    def of_one(cls, job: Job, candidate: Candidate) -> Self:
        """Return the situation of a layout that nothing is compared with."""
        replica = float(candidate.memory.reserved_bytes)
        return cls(job=job, candidate=candidate, smallest_replica_bytes=replica, fastest=candidate)

    @property
    def fits_on_one_gpu(self) -> bool:
        """Return whether one GPU can hold and train a whole replica with room to spare."""
        return is_roomy(self.job, self.smallest_replica_bytes)

    @property
    def is_multi_node(self) -> bool:
        """Return whether the job spans nodes; a rack that NVLink joins counts as one."""
        return self.job.cluster.needs_network

    def share(self, *terms: str) -> float:
        """Return the share of the candidate's step that terms of its step time take."""
        step_time = self.candidate.step_time
        seconds = sum(float(term.amount) for term in step_time.terms if term.name in terms)
        return seconds / float(step_time.step_seconds)


def is_roomy(job: Job, reserved_bytes: float) -> bool:
    """Return whether a GPU holds a layout's memory with room to spare."""
    return reserved_bytes / job.usable_bytes <= COMFORTABLE_FRACTION


@frozen
class Finding:
    """A rule that fired, with its reason in numbers."""

    code: str
    name: str
    severity: Severity
    message: str


@frozen
class Preference:
    """What a branch of the decision tree admits: ZeRO stages, and techniques beside them."""

    zero_stages: frozenset[int]
    techniques: frozenset[str]
    """Names of `planner.domain.dimensions.DIMENSIONS`."""
    overruled_by: frozenset[str]
    """Techniques that a layout may have which the search finds faster, and so is followed."""

    def admits(self, table: Table) -> Column:
        """Return which layouts of a table the branch admits."""
        is_stage: Column = np.isin(table.zero_stage, list(self.zero_stages))
        return is_stage & _has_only(table, self.techniques)

    def may_be_overruled_by(self, table: Table) -> Column:
        """Return which layouts of a table may be followed against the branch."""
        return _has_only(table, self.overruled_by)


def _has_only(table: Table, techniques: frozenset[str]) -> Column:
    allowed = np.ones(num_rows(table), dtype=np.bool_)
    for dimension in DIMENSIONS:
        if dimension.name not in techniques:
            allowed &= np.logical_not(table.uses(dimension))
    return allowed


@dataclass(frozen=True, slots=True)
class Rule:
    """A code and the function that judges; the function's docstring is the documentation."""

    code: str
    severity: Severity
    judge: Callable[[Situation], str | None]

    @property
    def name(self) -> str:
        """Return the pattern found, in kebab case."""
        return shown_name(self.judge)

    @property
    def text(self) -> str:
        """Return the statement and its Why, Instead and Source."""
        return documentation(self.judge)

    def find(self, situation: Situation) -> Finding | None:
        """Return the finding, or None where the rule stays silent."""
        message = self.judge(situation)
        if message is None:
            return None
        return Finding(code=self.code, name=self.name, severity=self.severity, message=message)
