"""What a rule is, what it looks at, and what it finds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

import numpy as np

from planner.core.documented import documentation, shown_name
from planner.core.errors import PlannerError
from planner.core.frozen import frozen
from planner.core.term import Column
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


ONE_GPU, ONE_NODE, LARGER_GPUS = "one GPU", "one node", "the larger GPUs"
HALF, HALF_OF_EACH = "half of the nodes", "half of the GPUs of each node"
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
    admitted: Candidate
    """The best that the tree's branch admits: the candidate itself where it is one."""
    is_for_memory: bool = False
    """Whether the smallest layout was asked for, not the fastest."""
    held_back: Candidate | None = None
    """The fastest layout of all that fit, where the choice is another."""
    on_gpu: Candidate | None = None
    """What would be chosen without offload, where the candidate offloads although other layouts fit."""
    simplest: Candidate | None = None
    """The fastest of plain DDP that fits."""
    eager: Candidate | None = None
    """What would be chosen without torch.compile, where that was open."""
    on_fewer_gpus: Mapping[str, Candidate] = field(default_factory=dict)
    """What would be chosen on fewer GPUs, by which they are; the fewest first."""
    asked: frozenset[str] = frozenset()
    """Fields of the layout that were held fixed at more than their least value."""
    largest_layer_bytes: float = 0.0
    """What a GPU must hold at least that runs the largest layer whole; 0 where it holds a replica."""

    @classmethod
    def of_one(cls, job: Job, candidate: Candidate) -> Self:
        """Return the situation of a layout that nothing is compared with."""
        replica = float(candidate.memory.reserved_bytes)
        return cls(job=job, candidate=candidate, smallest_replica_bytes=replica, admitted=candidate)

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
        """Return the finding, or None where the rule stays silent, or asks what of this job cannot be answered.

        A rule explains: it may not stop an answer.
        """
        try:
            message = self.judge(situation)
        except PlannerError:
            return None
        if message is None:
            return None
        return Finding(code=self.code, name=self.name, severity=self.severity, message=message)
